"""A recorded trace as a run: the same as that of its scenario."""

import gzip

import pytest

from schedproof.gate.traces.trace_file import open_trace
from schedproof.gate.web.show.page import page_data
from schedproof.gate.web.show.recording import record_run as made
from schedproof.gate.web.show.recording import record_trace
from schedproof.model.errors import InputError

from ...trace_build import (
    THREE,
    bent,
    recorded,
    request,
    scenario,
    text,
    without_output_lens,
    written,
)


def shown(path, **options):
    with open_trace(str(path)) as source:
        return record_trace(source, **options)


SAME = ("steps", "ids", "of", "run", "queues", "blocks", "happenings", "projected", "refused")


@pytest.mark.parametrize("revision", ["2.1.2", "2.5.2"])
def test_a_trace_shows_what_its_scenario_does(tmp_path, revision):
    requests = (*THREE, request("d", 4, 9, 5, abort_at=7))
    asked = scenario(*requests, revision=revision)
    read = shown(written(tmp_path / "t", recorded(asked)))
    data, expected = page_data(read), page_data(made(asked))
    assert {key: data[key] for key in SAME} == {key: expected[key] for key in SAME}
    assert read.broken == []


def test_lengths_that_nobody_said_are_read_from_the_end(tmp_path):
    asked = scenario(revision="2.1.2")
    read = shown(written(tmp_path / "t", without_output_lens(recorded(asked))))
    assert [recorded_request.tokens_to_emit for recorded_request in read.scenario.requests] == [
        6,
        3,
        4,
    ]
    assert page_data(read)["projected"] == page_data(made(asked))["projected"]


def test_a_packed_trace_of_several_runs_shows_the_one_that_breaks_a_rule(tmp_path):
    lines = recorded(scenario(revision="2.1.2"))
    wrong = bent(lines, 3, lambda step: step.update(waiting=["ghost"]))
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(text(lines) + text(wrong) + text(lines)))
    read = shown(path)
    assert read.broken[0].rule == "ALL-R03"
    assert len(read.steps) == 4
    assert read.notes[0].startswith(f"run 2 of the trace, from line {len(lines) + 1} to line ")
    assert "ghost" in page_data(read)["ids"]


def test_a_trace_that_leaves_its_model_has_the_models_step_beside_it(tmp_path):
    lines = recorded(scenario(revision="2.1.2"))
    wrong = bent(lines, 5, lambda step: step.update(tkv=(step["tkv"] or 0) + 1))
    with open_trace(str(written(tmp_path / "t", wrong))) as source:
        read = record_trace(source, rules=["ALL-R07"])
    assert (read.broken[0].rule, read.broken[0].step) == ("ALL-R07", 5)
    assert read.expected is not None
    assert read.expected.tkv == (read.steps[-1].tkv or 0) - 1


def test_a_crash_is_shown_with_the_steps_before_it(tmp_path):
    lines = recorded(scenario(revision="2.1.2"))
    steps = [place for place, line in enumerate(lines) if line.get("op") == "step"]
    crash = {"ok": False, "error": "crashed", "message": "no such block"}
    read = shown(written(tmp_path / "t", [*lines[: steps[4] + 1], crash]))
    assert (len(read.steps), read.broken[0].rule) == (4, "ALL-R01")
    assert "no such block" in read.broken[0].message


def test_a_record_that_was_cut_is_shown_up_to_there(tmp_path):
    lines = recorded(scenario(revision="2.1.2"))
    read = shown(written(tmp_path / "t", lines[:15]))
    assert read.steps
    assert any("has no reply" in note for note in read.notes)


def test_a_trace_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="contains no run with a request"):
        shown(written(tmp_path / "t", recorded(scenario())[:2]))
