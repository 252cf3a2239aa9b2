"""The track record: what its pages say follows from what was replayed."""

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.spec.catalogue import load, select
from schedproof.tools.pages import table_in
from schedproof.tools.track_record import (
    BROKEN,
    DETAILS,
    HOLDS,
    MARK,
    NO_START,
    PAGE,
    RED_LINES,
    ROOT,
    UNKNOWN,
    Span,
    details,
    faults,
    lasts,
    recorded,
    red_lines,
    red_lines_page,
    span_of,
    table,
)

FAULTS = faults()
ROWS = 73  # of 50 pixels each: more would not fit on a page of 3,650


def test_the_pages_are_made_of_the_faults_and_of_what_was_replayed():
    record = recorded()
    assert table_in(PAGE, MARK).splitlines() == [*table(record)], "run make tool NAME=track_record"
    assert DETAILS.read_text(encoding="utf-8").splitlines() == [*details(record)]
    assert RED_LINES.read_text(encoding="utf-8").splitlines() == [*red_lines_page(record)]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.id for fault in FAULTS])
def test_a_fault_has_a_scenario_a_rule_and_an_explanation(fault):
    scenario = read_scenario(ROOT / fault.scenario)
    assert select(load(scenario.system), [fault.rule])
    assert fault.heading


def test_a_red_line_is_a_fault_that_its_release_has_or_a_decision_with_a_reason():
    record = recorded()
    for line in red_lines():
        name, _, version = line.target.partition("==")
        assert bool(line.fault) != bool(line.why and line.change), line
        assert not line.fault or record[name][version][line.fault] == BROKEN, line
        system = "vllm" if name == "vllm" else "spyre"
        assert len(select(load(system), list(line.rules))) == len(line.rules)


def test_each_id_is_one_fault_and_the_page_stays_short():
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert len([*table(recorded())][2:]) <= ROWS


def test_every_row_is_seen_on_a_release_that_starts():
    record = recorded()
    shown = {line.partition("]")[0].removeprefix("| [") for line in [*table(record)][2:]}
    assert shown == {fault.id for fault in FAULTS}


@pytest.mark.parametrize(
    ("states", "span"),
    [
        ({"0.9.0": HOLDS, "0.10.0": BROKEN, "0.11.0": HOLDS}, ("0.10.0", "0.10.0", HOLDS, HOLDS)),
        ({"0.9.0": BROKEN, "0.10.0": BROKEN}, ("0.9.0", "0.10.0", None, None)),
        ({"0.9.0": BROKEN, "0.10.0": NO_START}, ("0.9.0", "0.9.0", None, NO_START)),
        ({"0.9.0": BROKEN, "0.9.1": HOLDS, "0.10.0": BROKEN}, ("0.9.0", "0.10.0", None, None)),
    ],
)
def test_since_and_until_are_the_first_and_the_last_release_that_has_it(states, span):
    assert span_of(states) == Span(*span)
    assert span_of({"0.9.0": HOLDS}) is None


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"0.1": HOLDS, "0.2": BROKEN, "0.3": HOLDS}, "vllm 0.2 to 0.2"),
        ({"0.1": UNKNOWN, "0.2": BROKEN, "0.3": UNKNOWN}, "vllm 0.2 or before to 0.2 or later"),
        (
            {"0.1": HOLDS, "0.2": UNKNOWN, "0.3": BROKEN, "0.4": UNKNOWN, "0.5": HOLDS},
            "vllm after 0.1 to 0.3, not in 0.5",
        ),
        ({"0.1": BROKEN, "0.2": NO_START}, "vllm 0.1 or before to 0.1 (does not start later)"),
        ({"0.1": NO_START, "0.2": BROKEN}, "vllm 0.2 or before, **still**"),
        ({"0.1": HOLDS}, ""),
    ],
)
def test_the_releases_are_named_as_exactly_as_the_replays_can_tell(states, words):
    assert lasts("vllm", states) == words


def test_no_scenario_is_kept_for_what_is_no_fault():
    assert {path.name for path in DETAILS.parent.iterdir()} == {
        "details.md",
        "faults.toml",
        "red-lines.md",
        "red-lines.toml",
        "releases.json",
    }
