"""A release that pauses keeps the limit, and pauses no request without need.

Paused requests do not starve each other; prefills that go before them starve them.
"""

from dataclasses import replace
from itertools import product

import pytest
import z3

from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre import documented, release_2_5_2, scheduler
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2, fairness_order
from schedproof.model.spyre.state import Sequence, State
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.pausing_lemmas import (
    FEW,
    FairnessRank,
    any_number,
    batch_within_limit_is_not_paused,
    before,
    chosen_request_prefills_or_waits,
    few,
    obligations,
)
from schedproof.solver.spyre.starvation import Scale, starving
from schedproof.solver.spyre.symbolic_state import StepConfiguration
from schedproof.spec.catalogue import load


def failing(*names):
    """Which of the lemmas on the limit fail; `names`: of these alone."""
    unpaused = [batch_within_limit_is_not_paused(size, 64) for size in (*FEW, None)]
    lemmas = [*any_number(), *few(RELEASE_2_5_2), *unpaused]
    lemmas = [lemma for lemma in lemmas if lemma.name in names]
    assert len(lemmas) == len(names)
    return {lemma.name for lemma in discharge(lemmas) if lemma.status != "proven"}


def names_of_lemmas():
    """Yield the names of the lemmas about one step together: its paths are followed once.

    Mark the slowest lemmas as nightly: with a member that is paused beside one that decodes.
    """
    unpaused = [batch_within_limit_is_not_paused(size, 64) for size in (*FEW, None)]
    names = [lemma.name for lemma in [*any_number(), *few(RELEASE_2_5_2), *unpaused]]
    of_steps = "decoding_requests_were_kept_", "step_keeps_requests_"
    sizes = [name.removeprefix(of_steps[0]) for name in names if name.startswith(of_steps[0])]
    for size in sizes:
        marks = [pytest.mark.nightly] * (size in ("1_1", "2_1"))
        yield pytest.param([f"{name}{size}" for name in of_steps], marks=marks, id=f"step_{size}")
    yield from (pytest.param([name], id=name) for name in names if not name.startswith(of_steps))


@pytest.mark.slow
@pytest.mark.parametrize("names", list(names_of_lemmas()))
def test_every_lemma_on_the_limit_is_proven_and_guarded(names):
    assert failing(*names) == set()


def test_a_limit_that_is_asked_of_one_request_alone_is_refuted(monkeypatch):
    whole = release_2_5_2.fits_limit
    alone = lambda config, batch: whole(config, batch[-1:])  # noqa: E731
    monkeypatch.setattr(release_2_5_2, "fits_limit", alone)
    names = {"limit_is_compared_with_next_step_2"}
    assert failing(*names) == names


@pytest.mark.slow
def test_a_turn_that_forgets_one_that_stays_is_refuted(monkeypatch):
    whole = release_2_5_2.settled
    alone = lambda asked, fits: whole(asked, lambda batch: fits(batch[-1:]))  # noqa: E731
    monkeypatch.setattr(release_2_5_2, "settled", alone)
    names = {"kept_requests_fit_after_each_turn", "decoding_requests_were_kept_2_0"}
    assert failing(*names) == names


def test_a_tkv_that_counts_no_padding_is_refuted(monkeypatch):
    monkeypatch.setattr(documented, "rectangle_tkv", lambda longest, filled, block: longest)
    names = {"no_tkv_exceeds_compared_tkv", "limit_is_compared_with_next_step_2"}
    assert failing(*names) == names


@pytest.mark.slow
def test_a_step_that_loses_a_paused_request_is_refuted(monkeypatch):
    whole = release_2_5_2.pause_and_resume

    def loses(config, state):
        after = whole(config, state)
        return after._replace(paused=after.paused[:1])

    monkeypatch.setattr(release_2_5_2, "pause_and_resume", loses)
    assert failing("step_keeps_requests_0_2") == {"step_keeps_requests_0_2"}


@pytest.mark.parametrize(
    "name",
    [
        "abort_only_removes_5",
        pytest.param("step_keeps_requests_1_1", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_a_paused_request_whose_abort_takes_another_along_is_refuted(name, monkeypatch):
    whole = scheduler.abort

    def takes_along(config, revision, state, request_id, **inside):
        after = whole(config, revision, state, request_id, **inside)
        return after._replace(running=after.running[1:]) if state.paused else after

    monkeypatch.setattr(scheduler, "abort", takes_along)
    assert failing(name) == {name}


def test_a_second_request_that_is_chosen_to_prefill_is_refuted():
    second = lambda config, revision, state: state.waiting[0] if state.waiting else None  # noqa: E731
    chosen = chosen_request_prefills_or_waits(
        StepConfiguration(replace(RELEASE_2_5_2, candidate=second))
    )
    assert [found.status for found in discharge([chosen])] == ["refuted"]


def test_a_batch_that_is_asked_about_as_it_was_is_refuted(monkeypatch):
    def before_the_step(config, batch):
        reached = documented.max_tkv([member.computed for member in batch], config.block_size)
        return len(batch) * reached <= config.max_batch_tkv

    monkeypatch.setattr(release_2_5_2, "fits_limit", before_the_step)
    names = {"limit_is_compared_with_next_step_1", "limit_is_compared_with_next_step_2"}
    assert failing(*names) == names


RULES = load("spyre")
STARVES = [rule for rule in RULES if rule.id == "SPY-P01"]


def test_every_lemma_is_proven_and_guarded():
    found = {lemma.name: lemma.status for lemma in discharge(obligations())}
    assert found == dict.fromkeys(found, "proven")


@pytest.mark.parametrize("long_outputs", [False, True])
def test_the_order_is_the_one_of_the_model(long_outputs):
    config = SpyreConfig(long_output_priority=long_outputs)
    for first, second in product(product((0, 1, 2), (1, 2)), repeat=2):
        members = [
            Sequence(name, 1, 9, 9, computed=1, paused_steps=steps, generated=tokens)
            for name, (steps, tokens) in (("a", first), ("b", second))
        ]
        order = fairness_order(config, State(running=tuple(members)))
        asked = [
            FairnessRank(
                z3.IntVal(member.paused_steps), z3.IntVal(member.generated), z3.IntVal(place)
            )
            for place, member in enumerate(members)
        ]
        said = z3.simplify(before(asked[0], asked[1], z3.BoolVal(long_outputs)))
        assert z3.is_true(said) == (order[0].id == "a")


def longest_wait(model, requests):
    """Steps and pausing steps in a row that a request was paused at most."""
    state = model.initial()
    for request in requests:
        state = model.arrive(state, request)
    waits, steps, pauses = {}, 0, 0
    while state.waiting or state.running or state.paused:
        state, seen = model.step(state)
        waits = {name: waits.get(name, 0) + 1 for name in seen["paused"]}
        steps = max([steps, *waits.values()])
        pauses = max([pauses, *(request.paused_steps for request in state.paused)])
    return steps, pauses


@pytest.mark.parametrize("long_outputs", [False, True])
@pytest.mark.parametrize("slots", [2, 3])
def test_the_paused_hold_each_other_back_for_less_steps_than_there_are_slots(slots, long_outputs):
    most = 0
    for limit in (4, 6):
        config = {"block_size": 2, "chunk_size": 2, "max_num_seqs": slots, "max_model_len": limit}
        config |= {"max_batch_tkv": limit, "long_output_priority": long_outputs}
        model = make_model("spyre", "2.5.2", config)
        for asked in product([(1, 1), (1, 2), (1, 4), (2, 3)], repeat=4):
            requests = [
                Request(
                    id=f"r{number}", arrival=0, prompt=((f"r{number}", request),), max_tokens=own
                )
                for number, (request, own) in enumerate(asked)
            ]
            steps, pauses = longest_wait(model, requests)
            # One who stays may start after each pausing step, and all requests that want one token.
            assert steps <= 2 * pauses + asked.count((1, 1))
            most = max(most, pauses)
    assert most == slots - 1


@pytest.mark.parametrize(
    ("scale", "members", "passing"),
    [(Scale(1, 1, 4, 4, 2), 2, 2), (Scale(64, 512, 1024, 1024, 2), 2, 2), (Scale(), 5, 32)],
)
def test_one_token_requests_go_before_a_paused_one_as_long_as_they_come(scale, members, passing):
    scenario = starving(scale, members, passing)
    outcome = replay(ModelTarget(), scenario, RULES)
    assert [violation.rule for violation in outcome.broken] == ["SPY-R52"]
    outcome = replay(ModelTarget(), scenario, STARVES)
    assert [violation.rule for violation in outcome.broken] == ["SPY-P01"]
    fewer = replay(ModelTarget(), starving(scale, members, passing - 1), STARVES)
    assert fewer.finished
    assert fewer.broken == []


def test_the_bound_of_the_catalogue_is_broken_without_one_token_requests():
    config = {"block_size": 2, "chunk_size": 2, "max_num_seqs": 3, "max_model_len": 6}
    tokens = (4, 4, 2, 2, 2)
    scenario = Scenario(
        system="spyre",
        revision="2.5.2",
        config={**config, "max_batch_tkv": 6},
        requests=tuple(
            Request(id=f"r{number}", arrival=0, prompt=((f"r{number}", 1),), max_tokens=own)
            for number, own in enumerate(tokens)
        ),
    )
    outcome = replay(ModelTarget(), scenario, STARVES)
    assert [violation.rule for violation in outcome.broken] == ["SPY-P01"]
    assert longest_wait(make_model("spyre", "2.5.2", scenario.config), scenario.requests) == (4, 2)


def test_a_release_that_remembers_the_paused_starves_nobody(start_revision):
    scenario = starving(Scale(1, 1, 4, 4, 2), 2, 6)
    model = make_model("spyre", "2.5.2", scenario.config)
    requests = scenario.requests
    assert longest_wait(model, requests)[0] > 2
    remembers = replace(model, revision=replace(model.revision, is_empty=documented.is_empty))
    assert longest_wait(remembers, requests)[0] == 1
