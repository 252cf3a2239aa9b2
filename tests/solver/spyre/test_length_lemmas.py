"""max_model_len: the front door keeps it in whole blocks, SPY-R41 does not otherwise."""

import random
from dataclasses import replace
from itertools import product

import pytest
import z3

from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre import release_2_5_2
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import fits_model_length, max_tkv
from schedproof.model.spyre.model import admitting_by
from schedproof.model.spyre.state import Sequence
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.numbers import Numbers, value_in
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import length_lemmas
from schedproof.solver.spyre.length_lemmas import (
    Scale,
    beyond_length,
    idle_step,
    joint_tkv,
    needless_wait,
    obligations,
    passes,
)
from schedproof.solver.spyre.symbolic_admission import Joining, Lengths
from schedproof.spec.catalogue import load
from schedproof.tests.solver.every_run import moves

RULES = load("spyre")


def run(scenario, last_step=None, target=None):
    """The outcome, and the steps seen."""
    steps = []
    outcome = replay(
        target or ModelTarget(), scenario, RULES, lambda _, step: steps.append(step), last_step
    )
    return outcome, steps


@pytest.mark.slow
@pytest.mark.parametrize("block", [None, 64])
def test_every_lemma_is_proven_and_guarded(block):
    found = {lemma.name: lemma.status for lemma in discharge(obligations(block))}
    assert found == dict.fromkeys(found, "proven")


@pytest.mark.parametrize("check", ["document_figure", "rounded"])
def test_what_may_refuse_a_request_that_is_alone_is_not_proven(check):
    facts = length_lemmas.alone_within_volume(check, Lengths(64, None), 0)
    solver = z3.Solver()
    solver.add(facts)
    assert solver.check() == z3.sat


@pytest.mark.slow
def test_the_constraint_is_the_one_of_the_model():
    answers = set()
    for seed in range(80):
        chance = random.Random(seed)
        block = chance.randint(1, 5)
        prompt, remaining = chance.randint(1, 20), chance.randint(0, 9)
        batch = [(chance.randint(1, 20), chance.randint(1, 9)) for _ in range(seed % 3)]
        current, longest = chance.randint(0, 20), chance.randint(15, 30)
        members = [Sequence("r", member, left, left, computed=member) for member, left in batch]
        newcomer = Sequence("n", prompt, remaining + 1, remaining + 1)
        config = SpyreConfig(block_size=block, chunk_size=block, max_model_len=longest)
        expected = fits_model_length(config, current, members, newcomer)
        numbers = Numbers()
        symbols = [(z3.IntVal(member), z3.IntVal(left)) for member, left in batch]
        joining = Joining(z3.IntVal(prompt), z3.IntVal(remaining))
        lengths = Lengths(block, None)
        said = passes(numbers, lengths, z3.IntVal(current), symbols, joining, longest)
        tkv = joint_tkv(numbers, lengths, z3.IntVal(prompt), z3.IntVal(longest))
        solver = z3.Solver()
        solver.add(numbers.facts)
        assert solver.check() == z3.sat
        assert z3.is_true(solver.model().eval(said)) == expected
        assert value_in(solver.model(), tkv) == max_tkv([prompt, longest], block)
        answers.add(expected)
    assert answers == {True, False}


@pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2", "2.5.2"])
@pytest.mark.parametrize(
    ("scale", "reached"),
    [
        (Scale(3, 3, 7), 9),
        (Scale(3, 3, 8), 9),
        (Scale(64, 512, 513), 576),
        (Scale(64, 512, 514), 576),
        (Scale(64, 512, 32_770), 32_832),
    ],
)
def test_a_tkv_exceeds_a_length_that_is_not_whole_blocks_and_no_rule_is_broken(
    revision, scale, reached
):
    outcome, steps = run(beyond_length(scale, revision))
    assert outcome.finished
    assert outcome.broken == []
    assert max(step.tkv or 0 for step in steps) == reached > scale.max_model_len


@pytest.mark.parametrize(
    ("scale", "waits"), [(Scale(1, 8, 5), 1), (Scale(2, 16, 8), 2), (Scale(64, 512, 128), 62)]
)
def test_the_constraint_refuses_until_the_first_has_ended_and_needlessly(
    start_revision, scale, waits
):
    scenario = needless_wait(scale)
    outcome, steps = run(scenario)
    assert outcome.finished
    assert outcome.broken == []
    late = next(number for number, step in enumerate(steps) if "r1" in step.scheduled)
    assert late == scenario.requests[1].arrival + waits

    config = make_model("spyre", "sound", scenario.config)
    without = replace(config.revision, fits_model_length=release_2_5_2.fits_model_length)
    model = replace(config, revision=without)
    state, seen = model.initial(), []
    for number in range(len(steps)):
        for request in scenario.requests:
            if request.arrival == number:
                state = model.arrive(state, request)
        state, step = model.step(state)
        seen.append(step)
    assert "r1" in seen[scenario.requests[1].arrival]["scheduled"]
    assert max(step["tkv"] or 0 for step in seen) <= scale.max_model_len


@pytest.mark.parametrize("scale", [Scale(1, 8, 4), Scale(2, 16, 6), Scale(64, 512, 64)])
def test_at_the_smallest_lengths_nobody_is_refused(scale):
    assert needless_wait(scale) is None


@pytest.mark.slow
def test_at_production_scale_a_request_is_refused_for_thirty_thousand_steps():
    scenario = needless_wait(Scale())
    first, second = scenario.requests
    assert first.max_tokens - 2 == 32_702
    outcome, steps = run(scenario, last_step=500)
    assert outcome.broken == []
    assert not any("r1" in step.scheduled for step in steps)
    assert outcome.exercised["SPY-R41"] == 500 - second.arrival + 1


@pytest.mark.parametrize("scale", [Scale(1, 1, 5), Scale(2, 2, 8), Scale(64, 64, 192), Scale()])
def test_a_stale_tkv_costs_one_idle_step_and_no_more(scale):
    scenario = idle_step(scale)
    outcome, steps = run(scenario)
    assert outcome.broken[0].rule == "SPY-R35"
    model = make_model("spyre", "2.1.2", scenario.config)
    state = model.initial()
    for number in range(len(steps) + 1):
        for request in scenario.requests:
            if request.arrival == number:
                state = model.arrive(state, request)
        state, seen = model.step(state)
    assert steps[-1].kind == "idle"
    assert seen["scheduled"].keys() == {"r1"}
    assert seen["kind"] == "prefill"


@pytest.mark.parametrize("chunk", [2, 4])
@pytest.mark.parametrize(
    ("revision", "pausing"), [("2.1.2", True), ("2.5.2", True), ("2.5.2", False)]
)
def test_no_two_idle_steps_follow_one_another_whoever_arrives_or_leaves(revision, pausing, chunk):
    config = {"block_size": 2, "chunk_size": chunk, "max_num_seqs": 2, "max_model_len": 8}
    model = make_model("spyre", revision, {**config, "max_batch_tkv": 8, "pausing": pausing})
    idled = 0
    for prompts in product([(4, 2), (5, 4), (2, 3)], repeat=2):
        requests = [
            Request(id=f"r{number}", arrival=0, prompt=((f"r{number}", prompt),), max_tokens=tokens)
            for number, (prompt, tokens) in enumerate(prompts)
        ]
        for move in moves(model, requests):
            if move.seen["kind"] == "idle" and move.after.waiting + move.after.admitted:
                idled += 1
                assert model.step(move.after)[1]["kind"] != "idle"
    assert bool(idled) == (revision == "2.1.2")


@pytest.mark.parametrize(
    ("check", "scale", "limit"),
    [
        ("rounded", Scale(2, 2, 5), 5),
        ("rounded", Scale(64, 512, 520), 520),
        ("document_figure", Scale(2, 2, 4), 4),
        ("document_figure", Scale(64, 512, 131_072), 131_072),
    ],
)
def test_two_checks_of_nobody_refuse_a_request_for_ever_although_it_is_alone(check, scale, limit):
    prompt = scale.chunk + 1
    longest = min(scale.max_model_len, limit)
    config = {
        "block_size": scale.block,
        "chunk_size": scale.chunk,
        "max_model_len": scale.max_model_len,
        "max_batch_tkv": limit,
    }
    alone = Request(id="r0", arrival=0, prompt=(("r0", prompt),), max_tokens=longest - prompt + 1)
    scenario = Scenario(system="spyre", revision="sound", config=config, requests=(alone,))
    outcome, _ = run(scenario, target=ModelTarget(check))
    assert outcome.broken[0].rule == "SPY-R35"
    model = make_model("spyre", "sound", scenario.config)
    admits = admitting_by(model.revision, check)
    assert admits is not None
    model = replace(model, revision=admits)
    state = model.arrive(model.initial(), scenario.requests[0])
    state, _ = model.step(state)
    for _ in range(20):
        after, seen = model.step(state)
        assert seen["kind"] == "idle"
        state = after
    assert model.step(state)[0] == state
