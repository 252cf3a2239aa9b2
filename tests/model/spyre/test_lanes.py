"""Lanes do what the reference model does, step by step."""

import pytest

from schedproof.gate.corpus.folder import builtin_scenarios
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request
from schedproof.model.spyre import lanes as lanes_module
from schedproof.model.spyre.lanes import PEAK, Lanes, read_rules, requests_table, run
from schedproof.model.spyre.volumetric import FORMULAS

from .lane_loads import LONGEST, loads_of, reference, same, settings, shown

SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}
# Published counterexamples at production scale, those of some hundred steps.
BUILTIN = ("late-arrivals-before-913.json", "late-arrivals-before-961.json")


def request(prompt, max_tokens, **more):
    return Request(
        **{"id": "a", "arrival": 0, "prompt": (("a", prompt),), "max_tokens": max_tokens} | more
    )


@pytest.mark.parametrize("seed", range(10))
def test_every_step_is_that_of_the_reference_model(seed):
    revision, formula, config = settings(seed)
    loads = loads_of(seed, config)
    rules = read_rules(revision, config, formula)
    lanes = Lanes(rules, requests_table(rules, loads))
    expected = [list(reference(revision, formula, config, load)) for load in loads]
    for number in range(max(map(len, expected))):
        before = lanes.computed.copy()
        lanes.step()
        for place, steps in enumerate(expected):
            if number < len(steps):
                seen = shown(lanes, before, place, loads[place])
                wanted = {**steps[number], "running": sorted(steps[number]["running"])}
                assert seen == {field: wanted[field] for field in seen}, (number, place)
    for place, steps in enumerate(expected):
        volumes = [
            len(step["scheduled"]) * step["tkv"] for step in steps if step["kind"] == "decode"
        ]
        if len(steps) == max(map(len, expected)):  # others were taken on
            assert lanes.lane[PEAK, place] == max(volumes, default=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 75))
def test_runs_end_where_the_reference_model_ends(seed):
    revision, formula, config = settings(seed)
    rules = read_rules(revision, config, formula)
    loads = loads_of(seed, config)
    result = run(rules, requests_table(rules, loads))
    for place, load in enumerate(loads):
        steps = list(reference(revision, formula, config, load))
        if len(steps) < LONGEST:
            assert result.steps[place] == len(steps)


@pytest.mark.slow
@pytest.mark.parametrize("formula", [None, "1.10.0", "2.0.1", "2.1.0", "2.1.2"])
@pytest.mark.parametrize("name", BUILTIN)
def test_published_counterexamples_reach_the_volume_of_the_model(name, formula):
    scenario = builtin_scenarios("spyre")[name]
    rules = read_rules("documented", scenario.config, formula)
    reported = run(rules, requests_table(rules, [scenario.requests]))
    steps = list(reference("documented", formula, scenario.config, scenario.requests))
    decodes = [len(step["scheduled"]) * step["tkv"] for step in steps if step["kind"] == "decode"]
    assert (reported.steps[0], reported.peak[0]) == (len(steps), max(decodes))
    if formula == "2.0.1" and name == "late-arrivals-before-961.json":
        assert reported.peak[0] > scenario.config["max_batch_tkv"]


def test_who_is_refused_for_ever_is_cut_and_its_idle_steps_are_counted():
    """The page's figure counts the last token, and rounds up: alone it would not fit."""
    config = {**SMALL, "max_model_len": 30, "max_batch_tkv": 30, "chunk_size": 4}
    rules = read_rules("documented", config, "document_figure")
    reported = run(rules, requests_table(rules, [[request(9, 22)], [request(4, 2)]]))
    assert reported.idle.tolist() == [101, 0]
    assert reported.peak.tolist() == [0, 5]


def test_lanes_that_do_not_fit_at_once_are_run_in_turns(monkeypatch):
    rules = read_rules("sound", SMALL)
    table = requests_table(rules, [[request(prompt, 5)] for prompt in (1, 5, 9, 13, 17)])
    whole = run(rules, table)
    monkeypatch.setattr(lanes_module, "AT_ONCE", 2)
    assert same(run(rules, table), whole)
    assert whole.steps.tolist() == [5, 5, 6, 6, 7]


@pytest.mark.parametrize(
    ("revision", "own"),
    [("sound", "common_base"), ("documented", "document_realigned"), ("2.1.2", "2.1.2")],
)
def test_a_revision_admits_by_its_own_projection(revision, own):
    assert read_rules(revision, SMALL).choices.formula is FORMULAS[own]


def test_slack_is_added_to_a_formula():
    assert read_rules("sound", SMALL, "2.1.0+7").choices.formula.slack == 7


def test_no_lanes_and_no_requests_are_over_at_once():
    rules = read_rules("sound", SMALL)
    assert run(rules, requests_table(rules, [])).steps.size == 0
    assert run(rules, requests_table(rules, [[]])).steps.tolist() == [0]


@pytest.mark.parametrize(
    ("revision", "changes", "formula", "path"),
    [
        ("2.5.2", {}, None, "$.revision"),
        ("sound", {"prefix_caching": True}, None, "$.config.prefix_caching"),
        ("sound", {"num_blocks": 99}, None, "$.config.num_blocks"),
        ("sound", {"chunk_size": 6}, None, "$.config.chunk_size"),
        ("sound", {}, "exact", "$.formula"),
    ],
)
def test_what_lanes_do_not_know_is_refused(revision, changes, formula, path):
    with pytest.raises(InputError) as refused:
        read_rules(revision, SMALL | changes, formula)
    assert refused.value.path == path
    assert "valid" in refused.value.problem or "multiple" in refused.value.problem


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (request(4, 2, abort_at=1), "$.requests[1].abort_at"),
        (request(30, 4), "$.requests[1]"),
        (request(4, 2, id="b"), "$.requests[1].id"),
    ],
)
def test_requests_that_lanes_cannot_run_are_refused(bad, path):
    with pytest.raises(InputError) as refused:
        requests_table(read_rules("sound", SMALL), [[request(4, 2, id="b"), bad]])
    assert refused.value.path == path
