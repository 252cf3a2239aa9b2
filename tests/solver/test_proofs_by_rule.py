"""Every rule with a decision is in the catalogue, and what it claims is what is shown.

The code that it names is what the lemmas run: a change of it makes one of them fail.
"""

import sys
from functools import reduce
from importlib import import_module

import pytest

from schedproof.gate.search.proofs import answer
from schedproof.gate.search.question import questions_of
from schedproof.model.pool import Pool, prefix
from schedproof.model.spyre import blocks, documented, release_2_5_2
from schedproof.model.vllm import kv_cache, queue, scheduler
from schedproof.model.vllm.model import VllmModel
from schedproof.solver.smt.obligation import Discharged, Obligation, discharge
from schedproof.solver.spyre.proofs_by_rule import PROOFS as SPYRE
from schedproof.solver.systems import proofs_of
from schedproof.solver.vllm.proofs_by_rule import PROOFS as VLLM
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

PROOFS = {"spyre": (SPYRE, 64), "vllm": (VLLM, 16)}
RULES = [(system, rule) for system in PROOFS for rule in PROOFS[system][0]]


def lemmas(system, rule):
    proof = PROOFS[system][0][rule]
    return proof.obligations(proof.block)


@pytest.mark.parametrize("system", PROOFS)
def test_every_rule_is_in_the_catalogue(system):
    assert PROOFS[system][0].keys() <= {rule.id for rule in load(system)}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_catalogue_names_z3_for_exactly_the_checked_rules_that_it_decides(system):
    own = questions_of(system)
    decided = {*proofs_of(system), *(own.rules if own is not None else ())}
    checked = {rule.id for rule in load(system) if rule.checked}
    named = {rule.id for rule in load(system) if "z3" in rule.engines}
    assert named == decided & checked


@pytest.mark.slow
@pytest.mark.parametrize(("system", "rule"), RULES)
def test_a_decision_has_lemmas_with_names_and_sentences_and_counterexamples_to_replay(system, rule):
    proofs, size = PROOFS[system]
    for block in (None, size):
        found = proofs[rule].obligations(block)
        assert found or system == "spyre"
        assert all(isinstance(lemma, Obligation) for lemma in found)
        assert len({lemma.name for lemma in found}) == len(found)
        assert all(lemma.sentence.endswith(".") for lemma in found)
    for make in proofs[rule].counterexamples.values():
        assert make() is not None


def ended(status="proven", code=("spyre.blocks.fits_pool",)):
    return Discharged("a", "A.", status, 0.0, "Z3", code)


def test_an_answer_says_of_which_code_it_is_and_what_it_assumes():
    proof = SPYRE["SPY-R50"]
    lines = list(answer(proof, [ended(), ended(code=())]))
    assert lines[:2] == [
        "answer, in the cases that the lemmas run: No, on the model `sound` and on that of 2.5.2.",
        "  proven for the model's code: spyre.blocks.fits_pool",
    ]
    assert lines[2:] == [
        *(f"  assumed: {assumption}" for assumption in proof.assumes),
        "  tested, not proven: what the rule says beyond the question, every other case, and "
        + proof.tested,
    ]
    [_, about, *_] = answer(proof, [ended(code=())])
    assert about == "  the arithmetic holds; the code is tested, not proven"


@pytest.mark.parametrize("found", [[], [ended(), ended("refuted")], [ended("unguarded")]])
def test_nothing_is_answered_that_is_not_proven(found):
    assert [*answer(SPYRE["SPY-R50"], found)] == [
        "no answer, because an answer needs a proof of every lemma"
    ]


class Reached(BaseException):
    """The code has run."""


def runs(claim, names):
    """The functions, by their names below `model`, that building a claim does not run."""
    missing = {named(name).__code__: name for name in names}

    def called(frame, event, _):
        missing.pop(frame.f_code if event == "call" else None, None)
        if not missing:
            raise Reached

    sys.setprofile(called)
    try:
        claim()
    except Reached:
        pass
    finally:
        sys.setprofile(None)
    return set(missing.values())


def named(name):
    module, _, function = name.rpartition(".")
    try:
        return getattr(import_module(f"schedproof.model.{module}"), function)
    except ModuleNotFoundError:
        module, _, owner = module.rpartition(".")
        found = import_module(f"schedproof.model.{module}")
        return reduce(getattr, (owner, function), found)


@pytest.mark.parametrize(("system", "rule"), RULES)
def test_every_rule_has_lemmas_about_code_and_they_name_the_code_that_they_run(system, rule):
    about = [lemma for lemma in lemmas(system, rule) if lemma.code]
    assert about
    for lemma in {lemma.code: lemma for lemma in about}.values():
        assert runs(lemma.claim, lemma.code) == set(), lemma.name


RELEASES = {"2.1.2", "2.5.2"}
CODE = {
    (system, lemma.name): lemma
    for system, rule in RULES
    if rule != "SPY-R53"  # tests/solver/spyre/test_progress_lemmas.py
    for lemma in lemmas(system, rule)
    if lemma.code
}


def others_by_night(named):
    """Mark the lemma of a release as nightly if there is the same lemma of `sound`."""
    system, name = named
    lemma, _, revision = name.rpartition("_")
    repeats = revision in RELEASES and (system, f"{lemma}_sound") in CODE
    return pytest.param(named, marks=[pytest.mark.nightly] * repeats, id=" ".join(named))


@pytest.mark.slow
@pytest.mark.parametrize("named", [others_by_night(named) for named in CODE])
def test_every_lemma_about_code_is_proven_and_guarded(named):
    [found] = discharge([CODE[named]])
    assert found.status == "proven"


# Faults, as the code of a function that takes the place of the model's own.


def yes(*_):
    return True


def a_block_late(prompt, computed, chunk_size, block_size):
    left_padding = left_padding_blocks(prompt, chunk_size, block_size) * block_size  # noqa: F821
    chunk = (left_padding + computed) // chunk_size
    start = max(chunk * chunk_size - left_padding, 0)
    return start, min((chunk + 1) * chunk_size - left_padding + block_size, prompt)


def reversed_fairness(config, state):
    return sorted([*state.paused, *state.decoding], key=lambda request: request.paused_steps)


def no_promise(config, revision, state):
    return 0


def beyond_budget(config, uncomputed, budget):
    return capped(config, uncomputed)  # noqa: F821


def uncapped(config, uncomputed):
    return uncomputed


def keeps_share(config, plan, victim):
    lost = victim.rewound()
    running = tuple(request for request in plan.running if request is not victim)
    preempted = (*plan.preempted, victim.id)
    pool = kv_cache.free(config, plan.pool, victim, plan.holders)
    waiting = (lost, *plan.waiting)
    return plan._replace(running=running, waiting=waiting, preempted=preempted, pool=pool)


def first_victim(config, running):
    return running[0]


def no_room(config, pool, number, tokens):
    return None


def without_reserve(config, pool, block, hit, tokens, someone_runs):
    start = len(hit) * config.block_size
    covered = max(block.num_tokens, start + tokens) if config.reserve_full_isl else start + tokens
    if not fits(pool, blocks_for(covered, config.block_size) - len(hit)):  # noqa: F821
        return None
    block, pool = allocator.start(pool, block, hit, config.block_size)  # noqa: F821
    return hold(config, pool, block, tokens)  # noqa: F821


def let_in(self, request):
    return None


def last_token_too(pool: Pool, content, tokens, block_size):
    found = []
    for number in range(1, tokens // block_size + 1):
        holders = pool.cached.get(prefix(content, number * block_size))
        if not holders:
            break
        found.append(holders[0])
    return tuple(found)


FAULTS = [
    ("SPY-R41", "constraint_is_as_in_lemmas_0", documented.fits_model_length, yes),
    ("SPY-R41", "step_obeys_length_constraint", documented.satisfies_last_chunk, yes),
    ("SPY-R50", "step_keeps_promises_covered_admits_0_sound", blocks.fits_pool, yes),
    ("SPY-R50", "step_keeps_promises_covered_admits_0_2.5.2", blocks.reserved, no_promise),
    ("SPY-R18", "chunk_is_planned_as_in_lemmas", documented.next_chunk, a_block_late),
    ("SPY-R58", "step_runs_planned_chunk_sound", documented.next_chunk, a_block_late),
    (
        "SPY-P01",
        "code_starts_newcomer_behind_paused_0_1",
        release_2_5_2.fairness_order,
        reversed_fairness,
    ),
    ("SPY-R51", "step_keeps_fair_order_1_1_long", release_2_5_2.fairness_order, reversed_fairness),
    ("SPY-P01", "code_keeps_lone_request", release_2_5_2.fits_limit, lambda config, batch: False),
    ("V1-I2", "share_is_computed_as_in_lemmas", scheduler.clamp, beyond_budget),
    ("V1-R11", "share_is_computed_as_in_lemmas", scheduler.capped, uncapped),
    ("V1-R04", "step_keeps_budget_priority_2_1", scheduler.preempt, keeps_share),
    ("V1-I2", "step_keeps_budget_fcfs_2_1", scheduler.scheduled, lambda plan, *_: plan),
    ("V1CP-R12", "decision_keeps_first_fcfs_3_0", queue.victim, first_victim),
    ("V1CP-R15", "growth_decides_as_in_lemmas_1", kv_cache.grow, no_room),
    ("V1CP-R19", "admission_decides_as_in_lemmas_0_0", kv_cache.admit, without_reserve),
    ("V1CP-R22", "door_refuses_what_lemmas_assume", VllmModel.refusal, let_in),
    ("V1CP-R32", "growth_decides_as_in_lemmas_2", kv_cache.grow, no_room),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "lemma", "code", "fault"), FAULTS)
def test_a_change_of_the_code_is_refuted(rule, lemma, code, fault, monkeypatch):
    system = "spyre" if rule.startswith("SPY") else "vllm"
    [found] = [request for request in lemmas(system, rule) if request.name == lemma]
    monkeypatch.setattr(code, "__code__", fault.__code__)
    [result] = discharge([found])
    assert result.status == "refuted"


def test_a_hit_on_the_last_token_is_refuted(monkeypatch):
    from schedproof.solver.vllm import code_lemmas

    [found] = [
        lemma for lemma in lemmas("vllm", "V1CP-R28") if lemma.name == "hit_leaves_last_token_1"
    ]
    monkeypatch.setattr(code_lemmas, "cached_blocks", last_token_too)
    [result] = discharge([found])
    assert result.status == "refuted"
