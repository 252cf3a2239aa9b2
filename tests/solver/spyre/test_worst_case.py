"""The fewest requests that exceed the limit, at production scale and at the smallest.

The worst volume of two requests is that of the worst run at small scale.

How much slack makes a formula sound: a run with a token less, and the lemmas with it.
"""

from dataclasses import replace
from itertools import product

import pytest

from schedproof.model.pool import blocks_for
from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import fits_model_length, fits_volume
from schedproof.model.spyre.peak import peak_volume
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.scheduler import arrive, step
from schedproof.model.spyre.state import Sequence, State
from schedproof.model.spyre.volumetric import (
    FORMULAS,
    Decoding,
    Newcomer,
    accepts,
    realigned,
)
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.spyre.predicates.volume import volume
from schedproof.solver.spyre.admission_sequences import Setting, to_scenario
from schedproof.solver.spyre.worst_case import fewest, least_slack, needed, with_slack, worst
from schedproof.spec.catalogue import load, select
from schedproof.tools.admission.exact import replayed

LIMIT_RULE = select(load("spyre"), ["SPY-R07"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula",
    [
        "0.8.0",
        "1.10.0",
        "2.0.1",
        "2.1.0",
        "document_own_tkv",
        "document_realigned",
        "document_max_tkv",
    ],
)
def test_five_requests_break_an_unsound_formula_at_production_scale(formula):
    [found] = list(fewest(Setting(formula, 2), 5))
    assert (found.requests, found.answer) == (5, "sat")
    scenario = to_scenario(Setting(formula, 5), list(found.arrivals), "sound")
    outcome = replay(ModelTarget(formula), scenario, LIMIT_RULE)
    assert [violation.rule for violation in outcome.broken] == ["SPY-R07"]
    assert outcome.broken[0].message.startswith("5 requests x tkv")


@pytest.mark.parametrize("formula", ["2.1.2", "common_base"])
def test_two_and_three_requests_do_not_break_a_sound_formula(formula):
    setting = Setting(formula, 2, block=2, chunk=2, limit=8, max_model_len=8)
    answers = [(request.requests, request.where, request.answer) for request in fewest(setting, 3)]
    assert answers == [(2, "everywhere", "unsat"), (3, "everywhere", "unsat")]


def test_where_the_limit_cannot_be_reached_nothing_is_asked():
    assert list(fewest(Setting("2.1.0", 2, max_model_len=4096), 32)) == []


@pytest.mark.slow
def test_one_token_less_than_a_block_of_slack_is_not_enough():
    """A block more for every request makes 2.1.0 sound (test_formula_lemmas); 63 tokens do
    not."""
    setting = Setting("2.1.0+63", 2, limit=131_195)
    [found] = list(fewest(setting, 5))
    assert found.answer == "sat"
    scenario = to_scenario(setting, list(found.arrivals), "sound")
    assert replay(ModelTarget("2.1.0+63"), scenario, LIMIT_RULE).broken


SETTING = Setting("2.0.1", 2, block=2, chunk=2, limit=6, max_model_len=6)


def steps_of_run(formula, scenario):
    """The number of requests and batch x tkv of each step of a run, to its end."""
    seen = []

    def watch(_, step):
        seen.append((len(step.scheduled), volume(step)))

    replay(ModelTarget(formula), scenario, (), watch)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["1.10.0", "2.0.1", "document_realigned", "common_base"])
def test_the_worst_volume_is_that_of_the_worst_run(formula):
    sizes = [
        (prompt, tokens)
        for prompt, tokens in product(range(1, 6), range(2, 7))
        if prompt + tokens - 1 <= 6
    ]
    config = {"block_size": 2, "chunk_size": 2, "max_model_len": 6, "max_batch_tkv": 6}
    runs = [
        Scenario(
            system="spyre",
            revision="sound",
            config=config,
            requests=tuple(
                Request(id=name, arrival=step, prompt=((name, prompt),), max_tokens=tokens)
                for name, step, (prompt, tokens) in (("a", 0, first), ("b", arrival, second))
            ),
        )
        for first, second, arrival in product(sizes, sizes, range(6))
    ]
    steps = [step for scenario in runs for step in steps_of_run(formula, scenario)]
    expected = max(volume for _, volume in steps)
    setting = replace(SETTING, formula=formula)
    *_, overshoot = worst(setting, "overshoot")
    assert overshoot.exact
    assert overshoot.reached == max(expected, SETTING.limit)
    assert bool(overshoot.arrivals) == (expected > SETTING.limit)
    *_, volume = worst(setting, "volume")
    assert volume.exact
    # Where no request joins a batch there is no volume of two; one alone is never asked about.
    together = any(requests == 2 for requests, _ in steps)
    assert volume.reached == (expected if together else 0)


def test_what_was_reached_is_reached_by_the_run_given():
    *_, known = worst(SETTING, "overshoot")
    scenario = to_scenario(SETTING, list(known.arrivals), "sound")
    volumes = [volume for _, volume in steps_of_run(SETTING.formula, scenario)]
    assert max(volumes) == known.reached > SETTING.limit
    assert replay(ModelTarget(SETTING.formula), scenario, LIMIT_RULE).broken


def test_a_batch_that_fits_whatever_it_holds_leaves_nothing_to_ask():
    assert list(worst(replace(SETTING, limit=12), "overshoot")) == []


def safest_refused(setting):
    """Most tokens below the limit that a second request would have left, whom a first one's being
    there keeps out; -1 if that never happens. By the model's formulas, over all pairs."""
    block, found = setting.block, -1
    longest = range(1, setting.max_model_len)
    sizes = [
        (prompt, tokens)
        for prompt, tokens in product(longest, longest)
        if tokens > 1 and prompt + tokens - 1 <= min(setting.max_model_len, setting.limit)
    ]
    for (prompt, tokens), (own, most) in product(sizes, sizes):
        for age in range(blocks_for(own, setting.chunk), tokens - 1):
            computed, left = prompt + age, tokens - 1 - age
            member = Decoding(computed, left, computed)
            newcomer = Newcomer(own, most)
            whole = max(computed, own) // block
            ends = [
                realigned(own, whole, block) + most - 1,
                realigned(computed, whole, block) + left,
            ]
            if max(ends) > setting.max_model_len:
                continue
            projected = FORMULAS[setting.formula](computed, [member], newcomer, block)
            headroom = setting.limit - peak_volume([member], newcomer, block)
            if not accepts(projected, setting.limit):
                found = max(found, headroom)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("limit", [10, 12, 14])
@pytest.mark.parametrize("formula", ["1.10.0", "2.0.1", "2.1.2", "common_base", "document_figure"])
def test_the_worst_refusal_is_that_of_the_worst_pair(formula, limit):
    setting = Setting(formula, 2, block=2, chunk=4, limit=limit, max_model_len=8)
    expected = safest_refused(setting)
    *_, known = worst(setting, "waste")
    assert known.exact
    assert known.reached == expected
    assert bool(known.arrivals) == (expected >= 0)


def refused_by_what_has_left(setting):
    """The same of a third request, over all runs of the model; the first two decoded in the step
    before, in which one may have left."""
    revision = RELEASE_2_1_2
    config = SpyreConfig(
        block_size=setting.block,
        chunk_size=setting.chunk,
        max_num_seqs=4,
        max_model_len=setting.max_model_len,
        max_batch_tkv=setting.limit,
    )
    longest = range(1, setting.max_model_len)
    sizes = [
        (prompt, tokens)
        for prompt, tokens in product(longest, longest)
        if tokens > 1 and prompt + tokens - 1 <= min(setting.max_model_len, setting.limit)
    ]
    found = -1
    for lengths in product(sizes, repeat=3):
        requests = [
            Sequence(name, prompt, tokens, tokens)
            for name, (prompt, tokens) in zip("abc", lengths, strict=True)
        ]
        for second, third in product(range(1, 6), range(2, 6)):
            state = State(waiting=(requests[0],))
            for number in range(12):
                if number in (second, third):
                    state = arrive(state, requests[1 + (number == third)])
                state, seen = step(config, revision, state)
                waiting = [request.id for request in state.waiting]
                if {*seen["scheduled"]} == {"a", "b"} and waiting == ["c"]:
                    found = max(found, needless(config, revision, state))
    return found


def needless(config, revision, state):
    """Tokens that the first in line would leave, if the formula alone refuses it; else -1."""
    newcomer, members = state.waiting[0], state.decoding
    current = revision.current_tkv(config, state)
    if not members or not fits_model_length(config, current, members, newcomer):
        return -1
    if fits_volume(config, revision, current, members, newcomer):
        return -1
    decoding = [Decoding(member.computed, member.remaining, 0) for member in members]
    peak = peak_volume(decoding, Newcomer(newcomer.prompt, newcomer.max_tokens), config.block_size)
    return config.max_batch_tkv - peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit",
    [12, pytest.param(13, marks=pytest.mark.nightly), pytest.param(14, marks=pytest.mark.nightly)],
)
def test_a_tkv_that_is_remembered_refuses_more_and_that_is_the_worst(limit):
    setting = Setting("2.1.2", 3, 2, 4, limit, max_model_len=6, revision="2.1.2")
    expected = refused_by_what_has_left(setting)
    *_, known = worst(setting, "waste")
    assert known.exact
    assert known.reached == expected
    *_, current = worst(replace(setting, revision="sound"), "waste")
    assert current.reached < expected


def test_the_exact_check_refuses_nobody_in_vain():
    setting = Setting("exact", 3, block=2, chunk=4, limit=14, max_model_len=8)
    assert [known.arrivals for known in worst(setting, "waste")] == [()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "tokens", "requests"), [("2.1.0", 64, 2), ("2.0.1", 126, 3), ("1.10.0", 126, 3)]
)
def test_what_the_lemmas_need_a_run_needs_too(formula, tokens, requests):
    assert least_slack(formula, 512) == tokens
    assert replayed(Setting(formula, requests, max_model_len=1024)) == tokens


def test_by_a_reading_of_the_document_no_slack_short_of_the_models_length_is_enough():
    assert least_slack("document_max_tkv", 512) is None
    assert replayed(Setting("document_max_tkv", 2)) == 32_766


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula", [pytest.param("2.1.2", marks=pytest.mark.nightly), "common_base"]
)
def test_a_sound_formula_needs_none(formula):
    assert least_slack(formula, 512) == 0
    assert needed(Setting(formula, 2)) is None


def test_slack_that_a_formula_has_is_added_to():
    assert least_slack("2.1.0+60", 512) == 4
    assert with_slack("2.1.0+60", 4) == "2.1.0+64"
    assert with_slack("2.1.0", 64) == "2.1.0+64"
    assert with_slack("a+1/my.py:last", 64) == "a+1/my.py:last+64"
