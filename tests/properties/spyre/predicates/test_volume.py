"""A join that can exceed the limit is named when it happens, and no other join is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schedproof.gate.corpus.folder import builtin_scenarios
from schedproof.gate.judging.profiles import PROFILES
from schedproof.model.spyre.peak import peak_volume
from schedproof.model.spyre.volumetric import Decoding, Newcomer
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.properties.spyre.predicates.volume import Member, max_tkv, overrun
from schedproof.spec.catalogue import load

MEMBERS = st.builds(Member, st.integers(1, 40), st.integers(1, 30))
NEWCOMERS = st.builds(Member, st.integers(1, 40), st.integers(1, 30))
ADMISSION = [rule for rule in load("spyre") if rule.id == "SPY-R47"]


def volumes(batch, newcomer, block):
    """Batch x tkv of every decode step of the newcomer, one by one."""
    products = []
    for step in range(1, newcomer.remaining + 1):
        lengths = [
            member.length + step for member in [*batch, newcomer] if member.remaining >= step
        ]
        blocks = max(-(-length // block) for length in lengths)
        tkvs = [(blocks - -(-length // block)) * block + length for length in lengths]
        products.append(len(lengths) * max(tkvs))
    return products


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(MEMBERS, max_size=6), NEWCOMERS, st.integers(1, 8), st.data())
def test_an_overrun_is_found_exactly_where_some_decode_step_of_the_newcomer_has_it(
    batch, newcomer, block, data
):
    every = volumes(batch, newcomer, block)
    limit = data.draw(st.sampled_from([max(every) - 1, max(every), max(every) // 2]))
    over = overrun(batch, newcomer, block, limit)
    assert (over is not None) == (max(every) > limit)
    if over is not None:
        assert every[over.step - 1] == over.requests * over.tkv > limit


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(MEMBERS, max_size=6), NEWCOMERS, st.integers(1, 8))
def test_the_exact_check_of_the_model_and_the_rule_agree(batch, newcomer, block):
    decoding = [
        Decoding(member.length, member.remaining, member.length, member.length) for member in batch
    ]
    peak = peak_volume(decoding, Newcomer(newcomer.length, newcomer.remaining + 1), block)
    assert overrun(batch, newcomer, block, peak) is None
    assert overrun(batch, newcomer, block, peak - 1) is not None


def test_tkv_is_that_of_a_request_padded_to_the_blocks_of_the_longest():
    assert max_tkv([65, 64, 3], 64) == 128
    assert max_tkv([128, 63], 64) == 128
    assert max_tkv([129, 63], 64) == 191


def searched(formula, seeds):
    """The tight searches of profile quick, one a seed, for a bold join; lockstep is off."""
    search = Search(
        SearchOptions(ModelTarget(formula), "spyre", "sound", ADMISSION, "tight", frozenset())
    )
    for seed in range(seeds):
        if run_search(search, PROFILES["quick"].examples, seed, 0):
            break
    return search


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula",
    [
        *("document_own_tkv", "document_realigned", "document_max_tkv", "document_figure"),
        *("0.8.0", "1.10.0", "2.0.1", "2.1.0"),
    ],
)
def test_a_formula_with_too_little_slack_is_found(formula):
    search = searched(formula, 5)
    assert search.failure is not None
    assert search.failure[1][0].rule == "SPY-R47"


@pytest.mark.parametrize("slack", [48, 62, 63, 64])
def test_a_token_too_little_of_slack_is_found_in_every_gate(slack):
    scenario = builtin_scenarios("spyre")["a-token-too-little-of-slack.json"]
    outcome = replay(ModelTarget(f"2.1.0+{slack}"), scenario, load("spyre"))
    assert [finding.rule for finding in outcome.broken] == (["SPY-R47"] if slack < 64 else [])
    assert outcome.steps < PROFILES["quick"].corpus_steps


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["2.1.2", "common_base", "exact"])
def test_a_formula_that_keeps_the_limit_is_not_accused(formula):
    search = searched(formula, 1)
    assert search.failure is None
    assert search.exercised["SPY-R47"] > 100


@pytest.mark.slow
def test_a_bold_join_is_broken_even_if_the_newcomer_ends_with_its_first_token():
    scenario = builtin_scenarios("spyre")["late-arrivals-before-961.json"]
    *others, last = scenario.requests
    ends_early = (*others, replace(last, output_len=1))
    scenario = replace(scenario, requests=ends_early, expect=None)
    outcome = replay(ModelTarget(), scenario, load("spyre"))
    assert [finding.rule for finding in outcome.broken] == ["SPY-R47"]
    kept = [rule for rule in load("spyre") if rule.id != "SPY-R47"]
    assert replay(ModelTarget(), scenario, kept).broken == []
