"""The page of a run: whole, small, the same each time, and no request's words are its own."""

import base64
import gzip
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.console.step_lines import one_line
from schedproof.gate.web.show.following import Changes, Line
from schedproof.gate.web.show.page import first_step_shown, pack, page
from schedproof.gate.web.show.recording import record_run
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

from ...reported import HOSTILE
from ...trace_build import SMALL
from . import runs

LARGEST = 200_000  # bytes, of 2,200 steps of 32 requests


def unpacked(run):
    """What the script of a page is given."""
    [text] = re.findall(r'<script id="data" type="text/plain">(.*?)</script>', page(run))
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text)))
    return data


def at(line, step):
    """A number as the script reads it."""
    for place in range(0, len(line), 7):
        first, value, slope, steps, stride, rise, times = line[place : place + 7]
        for time in range(times):
            later = step - first - time * stride
            if 0 <= later < steps:
                return value + time * rise + later * slope
    return None


@given(st.lists(st.none() | st.integers(-3, 3)))
def test_a_line_gives_every_number_back(numbers):
    line = Line()
    for step, number in enumerate(numbers):
        line.note(step, number)
    assert [line.at(step) for step in range(len(numbers))] == numbers
    assert [at(line.flat(), step) for step in range(len(numbers))] == numbers


def test_what_alternates_for_a_thousand_steps_is_a_few_pieces():
    line = Line()
    numbers = [7, *(40 + step // 2 for step in range(1000)), 3]
    for step, number in enumerate(numbers):
        line.note(step, number)
    assert len(line.pieces) <= 4
    assert [line.at(step) for step in range(len(numbers))] == numbers


def test_what_grows_by_one_for_a_thousand_steps_is_one_piece():
    line, changes = Line(), Changes()
    for step in range(1000):
        line.note(step, 40 + step)
        changes.note(step, step // 500)
    assert line.pieces == [(0, 40, 1, 1000, 0, 0, 1)]
    assert changes.kept == [(0, 0), (500, 1)]
    assert [changes.at(step) for step in (0, 499, 500)] == [0, 0, 1]


def steps_of(run, data):
    """Every request in every step, with the numbers that the page has."""
    for place, request in enumerate(run.scenario.requests):
        lines = data["of"][place]
        for number in range(len(run.steps)):
            yield number, request.id, {name: at(line, number) for name, line in lines.items()}


@pytest.mark.parametrize("make", [runs.pauses, runs.preemption])
def test_the_numbers_of_the_page_are_those_of_the_trace(make):
    run = make()
    data = unpacked(run)
    block = run.config["block_size"]
    compared = 0
    for number, name, shown in steps_of(run, data):
        step = run.steps[number]
        if shown.get("state") is None or name in (step.finished or {}):
            continue
        assert shown["now"] == step.scheduled.get(name, 0)
        assert shown["computed"] == (step.computed or {}).get(name, 0)
        assert shown["held"] == len((step.blocks or {}).get(name, ()))
        parts = (shown["cached"], shown["prompt"], shown["generated"], shown["now"])
        assert sum(part or 0 for part in parts) == shown["computed"]
        if shown.get("tkv") is not None:
            pad = (step.left_pad_blocks or {})[name]
            assert shown["tkv"] == pad * block + (step.computed or {})[name]
        compared += 1
    assert compared > 10
    for number, step in enumerate(run.steps):
        assert at(data["run"]["tokens"], number) == sum(step.scheduled.values())
        if step.kind == "decode" and run.scenario.system == "spyre":
            assert at(data["run"]["tkv"], number) == step.tkv
            volume = len(step.scheduled) * (step.tkv or 0)
            assert at(data["run"]["volume"], number) == volume


def test_blocks_are_given_back_from_what_grows():
    run = runs.preemption()
    data = unpacked(run)
    for place, request in enumerate(run.scenario.requests):
        for number, step in enumerate(run.steps):
            held: list[int] = []
            for first, kept, added in data["blocks"][place]:
                if first <= number:
                    held = held[:kept] + added
            if request.id in step.scheduled and request.id not in (step.finished or {}):
                assert tuple(held) == (step.blocks or {}).get(request.id, ())


def test_stakes_are_those_that_a_replay_counts():
    run = runs.preemption()
    data = unpacked(run)
    counted = {}
    for rule in data["rules"]:
        exercised = (at(rule["stakes"], number) for number in range(len(run.steps)))
        counted[rule["id"]] = sum(stakes or 0 for stakes in exercised)
    assert any(counted.values())
    outcome = replay(ModelTarget(), run.scenario, load("vllm"))
    assert counted == {rule: outcome.exercised[rule] for rule in counted}


@pytest.mark.slow
def test_a_page_opens_where_a_rule_broke_or_a_request_lost_its_place_or_at_the_first_step():
    assert first_step_shown(runs.volume()) == runs.volume().broken[0].step
    first = next(
        happening for happening in runs.preemption().happenings() if happening.what == "preempted"
    )
    assert first_step_shown(runs.preemption()) == first.step > 0
    assert first_step_shown(runs.admission()) == 0
    # A crash has no step of its own: the last one that there is.
    assert (runs.crash().broken[0].step, first_step_shown(runs.crash())) == (3, 2)


@pytest.mark.slow
def test_a_page_loads_nothing_and_is_small():
    whole = page(runs.volume())
    assert len(whole.encode()) < LARGEST
    assert "default-src 'none'" in whole
    assert "unsafe" not in whole[: whole.index("<style>")]
    linked = set(re.findall(r"(?:src|href|action)\s*=\s*[\"']?([^\"'\s>]+)", whole))
    assert linked == {"data:,", "#step=259"}
    own = whole.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "http" not in own
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|import)\s*\(", own)
    assert whole.count('<script type="module">') == whole.count("</style>") == 1


def test_the_same_run_gives_the_same_page():
    run = runs.preemption()
    assert pack(record_run(run.scenario)) == pack(run)


def test_names_of_others_are_text():
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=3) for name in HOSTILE
    )
    hostile = Scenario(system="spyre", revision="sound", config=SMALL, requests=requests)
    run = record_run(hostile, name="</title><script>alert(1)</script>\n")
    text = page(run)
    assert "<script>alert(1)" not in text
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; </title>" in text
    assert unpacked(run)["ids"] == [one_line(name) for name in HOSTILE]
    assert "\u202e" in "".join(HOSTILE)
    assert "\u202e" not in json.dumps(unpacked(run), ensure_ascii=False)
