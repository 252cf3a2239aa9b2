"""`schedproof check-trace`: the rules on what was recorded, and the model that it matches."""

import gc
import gzip
import io
import json
import re
import subprocess
import sys
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.traces.judge import TraceJudge, TraceRun
from schedproof.gate.traces.trace_file import Source, read_trace
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import planted

from ..trace_build import (
    Line,
    bent,
    line_of_step,
    recorded,
    request,
    scenario,
    text,
    without_output_lens,
    written,
)

pytestmark = pytest.mark.usefixtures("working_folder")


def judged(data, *, explain=False):
    """What the judge makes of a trace, and its runs."""
    runs: list[TraceRun] = []
    source = Source("t", io.BufferedReader(io.BytesIO(data)), lambda: 0, None)  # type: ignore[arg-type]
    judge = TraceJudge("t", [], explain, lambda run: None, runs.append, lambda words: None)
    judge.follow(read_trace(source))
    return judge, runs


def crowd(revision="sound", **config):
    """A batch that 2.5.2 pauses."""
    requests = [request(name, 0, 12, 30) for name in "abcd"]
    return scenario(*requests, revision=revision, **{"max_batch_tkv": 64, **config})


def test_a_trace_of_the_model_holds_and_matches_it_whole(run):
    written(Path("t"), recorded(scenario(revision="2.1.2")))
    result = run("check-trace", "t", "--explain", "--rule", "SPY-R22,SPY-R19,ALL-R07,ALL-R04")
    assert (result.code, result.err) == (0, "")
    assert "held           ALL-R07  " in result.out
    assert "held           SPY-R22  one token per decoding request (exercised in " in result.out
    assert "t: 1 run, 13 steps\n" in result.out
    assert "spyre 2.1.2 makes the same decisions in the run\n" in result.out
    last = result.out.splitlines()[-1]
    assert last == "schedproof model of spyre 2.1.2 against 2.1.2: conforms (4 held, 0 broken)"


def test_nobody_needs_to_know_where_a_request_ends(run):
    written(Path("t"), without_output_lens(recorded(scenario(revision="2.1.2"))))
    result = run("check-trace", "t", "--explain", "--rule", "ALL-R04,ALL-R07")
    assert (result.code, result.err) == (0, "")
    assert "held           ALL-R04" in result.out
    assert "spyre 2.1.2 makes the same decisions in the run" in result.out


def test_without_explain_no_model_is_run_and_lockstep_no_rule(run):
    written(Path("t"), recorded(scenario()))
    result = run("check-trace", "t")
    assert result.code == 0
    assert "ALL-R07" not in result.out
    assert "decides as recorded" not in result.out


def test_a_rule_that_belongs_to_no_run_is_no_pass(run):
    written(Path("t"), recorded(scenario()))
    result = run("check-trace", "t", "--rule", "SPY-R22,SPY-R51,V1-R08")
    assert result.code == 3
    assert "held           SPY-R22" in result.out
    assert "SPY-R51, V1-R08 apply to no run of t, so there is no verdict\n" in result.out


def test_what_was_never_at_stake_is_no_pass(run):
    written(Path("t"), recorded(scenario()))
    result = run("check-trace", "t", "--rule", "SPY-R41")
    assert result.code == 3
    assert "not exercised  SPY-R41" in result.out


def test_a_trace_may_be_packed_or_come_from_stdin(run):
    data = text(recorded(scenario()))
    Path("t.gz").write_bytes(gzip.compress(data))
    assert run("check-trace", "t.gz").code == 0
    words = [sys.executable, "-m", "schedproof", "check-trace", "-"]
    reported = subprocess.run(words, input=data, capture_output=True, check=True)
    assert b"stdin: 1 run, 13 steps" in reported.stdout


def test_a_wrong_number_is_found_with_its_line(run):
    lines = recorded(scenario(revision="2.1.2"))

    def more(step):
        step["tkv"] += 4

    written(Path("t"), bent(lines, 6, more))
    result = run("check-trace", "t", "--explain", "--json", "f.json")
    assert result.code == 1
    line = line_of_step(lines, 6)
    assert f"  where:    line {line} (run 1, started on line 1)\n" in result.out
    assert "BROKEN SPY-R26 tkv of a decode step\n" in result.out
    assert "  step 6:  tkv is reported as " in result.out
    assert "  in the same step ALL-R07: tkv: target " in result.out
    assert "  6 more steps of run 1 are not judged\n" in result.out
    assert "    spyre 2.1.2: 6 steps match; step 6: tkv: target " in result.out
    assert (
        "  spyre 2.1.2 matches longest, and would have taken these steps:\n    step     6 decode "
        in result.out
    )
    read = json.loads(Path("f.json").read_bytes())
    assert (read["format"], read["exit_code"]) == ("schedproof/trace@1", 1)
    [part] = read["parts"]
    assert (part["steps"], part["steps_not_judged"], part["broken_runs"]) == (13, 6, 1)
    broken = {rule["id"]: rule for rule in part["rules"] if rule["status"] == "violated"}
    assert broken.keys() == {"SPY-R26", "ALL-R07"}
    assert broken["SPY-R26"]["message"].startswith(f"run 1, line {line}: tkv is reported as ")
    assert broken["ALL-R07"]["consequence_of"] == "SPY-R26"


def test_a_wrong_kind_is_the_records_and_decides_nothing_about_the_scheduler(run):
    good = recorded(scenario(system="vllm", revision="documented"))
    wrong = bent(good, 0, lambda step: step.update(kind="decode"))
    written(Path("t"), good, wrong)
    result = run("check-trace", "t", "--json", "f.json")
    assert result.code == 3, result.out
    assert "ADAPTER ALL-R13 " in result.out
    [part] = json.loads(Path("f.json").read_bytes())["parts"]
    [entry] = [rule for rule in part["rules"] if rule["id"] == "ALL-R13"]
    assert entry["status"] == "inconclusive"
    assert entry["message"].startswith("ADAPTER: run 2, line ")


def test_what_the_scheduler_does_beside_a_wrong_kind_is_its_own(run):
    good = recorded(scenario(system="vllm", revision="documented"))
    wrong = bent(good, 0, lambda step: step.update(kind="decode"))
    lost = bent(wrong, 0, lambda step: step["running"].append("ghost"))
    written(Path("t"), wrong, lost)
    result = run("check-trace", "t", "--rule", "ALL-R13,ALL-R03", "--json", "f.json")
    assert result.code == 1, result.out
    [part] = json.loads(Path("f.json").read_bytes())["parts"]
    statuses = {rule["id"]: rule["status"] for rule in part["rules"]}
    assert statuses == {"ALL-R03": "violated", "ALL-R13": "inconclusive"}


def test_it_goes_on_in_the_next_run_and_shows_no_more_than_it_is_asked_for(run):
    good = recorded(scenario())
    bad = bent(good, 4, lambda step: step["running"].append("ghost"))
    written(Path("t"), bad, good, bad, bad)
    result = run("check-trace", "t", "--max-failures", "2")
    assert result.code == 1
    assert result.out.count("\n  where: ") == 2
    assert f"line {2 * len(good) + line_of_step(good, 4)} (run 3, started on line " in result.out
    assert "t: 4 runs, 52 steps, 24 of them after a broken rule and not judged" in result.out


def test_a_trace_of_another_revision_is_recognised(run):
    lines = recorded(crowd("2.5.2"))
    lines[0]["revision"] = "sound"
    written(Path("t"), lines)
    result = run("check-trace", "t", "--explain", "--max-failures", "1")
    assert result.code == 1
    assert "spyre 2.5.2 makes the same decisions in the run\n" in result.out
    assert "    spyre 2.5.2: all steps match\n" in result.out
    assert "spyre sound decides" not in result.out
    meant = run("check-trace", "t", "--revision", "2.5.2", "--explain", "--rule", "ALL-R07")
    assert (meant.code, meant.err) == (0, "")


def test_a_run_that_breaks_no_rule_and_is_not_its_models_is_explained(run):
    lines = recorded(scenario())
    written(Path("t"), bent(lines, 5, lambda step: step["blocks"]["a"].append(99)))
    result = run("check-trace", "t", "--explain", "--rule", "ALL-R04")
    assert result.code == 0
    assert "run 1, line 1: no rule is broken\n  the models on run 1 (13 steps):\n" in result.out
    assert "    spyre sound: 5 steps match; step 5: blocks: target " in result.out
    assert "no model of spyre matches a run to its end\n" in result.out
    assert run("check-trace", "t", "--explain", "--max-failures", "0").out.count("models be") == 0


@pytest.mark.parametrize(
    ("does", "run_of"),
    [
        ("generates one token too many", scenario()),
        ("an abort also loses the last waiting request", None),
        ("decides like revision sound", None),
    ],
)
def test_a_trace_of_a_mutant_breaks_its_rule(does, run_of):
    [fault] = [fault for fault in mutants_of("spyre") if fault.does == does]
    if does == "an abort also loses the last waiting request":
        run_of = scenario(
            *[request(name, 0, 12, abort_at=2 * (name == "a") or None) for name in "abc"]
        )
    if does == "decides like revision sound":
        late = [request("a", 0, 12, 30), request("b", 3, 7, 2), request("c", 9, 20, 9)]
        run_of = scenario(*late, revision="2.1.2")
    assert run_of is not None
    with planted(fault) as target:
        trace_build = import_module("schedproof.tests.gate.trace_build")
        lines = trace_build.recorded(run_of, target)
    _, [only] = judged(text(lines), explain=True)
    assert fault.rule in [failure.rule for failure in only.broken]


def test_a_needless_refusal_in_a_trace_is_found_with_its_line():
    lines = recorded(scenario(request("a", 0, 12, 3)))
    start, add = lines[:2], lines[2]
    refusal: Line = {"ok": False, "error": "rejected", "message": "too long"}
    _, [run] = judged(text([*start, add, refusal, *lines[4:]]))
    assert [(failure.rule, run.line) for failure in run.broken] == [("ALL-R12", 3)]
    assert "'too long'" in run.broken[0].message
    # Beside another request the load may be a reason, and an id that is known is one.
    _, [run] = judged(text([*start, add, lines[3], add, refusal]))
    assert run.broken == []


def test_every_system_has_its_rules_in_one_file(run):
    runs = [
        scenario(system=name, revision=revision)
        for name, revision in (
            ("spyre", "2.1.2"),
            ("vllm", "documented"),
            ("nano_vllm", "0.2.0"),
            ("llmservingsim", "head"),
        )
    ]
    written(Path("t"), *map(recorded, runs))
    result = run("check-trace", "t", "--explain", "--json", "f.json")
    assert result.code == 0, result.out
    read = json.loads(Path("f.json").read_bytes())
    for part, meant in zip(read["parts"], runs, strict=True):
        assert (part["system"], part["revision"]) == (meant.system, meant.revision)
        assert part["runs_that_match"][meant.revision] == 1


def test_a_crash_breaks_a_rule_and_a_start_that_is_refused_is_no_run(run):
    lines = recorded(scenario())
    place = line_of_step(lines, 3)
    crash = {"ok": False, "error": "crashed", "message": "out of\nmemory", "traceback": ""}
    refused = {"ok": False, "error": "config", "message": "no"}
    written(Path("t"), [lines[0], refused], [*lines[:place], crash])
    result = run("check-trace", "t")
    assert result.code == 1
    assert "line 1: the target did not start (config: no)\n" in result.out
    assert "BROKEN ALL-R01 never crashes\n" in result.out
    assert "  step 3:  out of memory\n" in result.out
    assert f"  where:    line {2 + place} (run 1, started on line 3)\n" in result.out


def test_a_crash_of_start_breaks_a_rule_too(run):
    lines = recorded(scenario())
    crash = {"ok": False, "error": "crashed", "message": "KeyError: x", "traceback": ""}
    said = "run 1, line 1: the scheduler raised at 'start': KeyError: x"
    for name, parts in (("alone", []), ("first", [lines])):
        written(Path(name), [lines[0], crash], *parts)
        result = run("check-trace", name, "--json", "v.json")
        assert result.code == 1
        assert "line 1: the target did not start (crashed: KeyError: x)\n" in result.out
        assert f"BROKEN         ALL-R01  never crashes: {said}" in result.out
        [part] = json.loads(Path("v.json").read_bytes())["parts"]
        assert (part["runs"], part["broken_runs"]) == (1 + len(parts), 1)
    assert part["target"]["name"] == "schedproof model of spyre"
    # As in a gate, a crash counts even if its rule was not chosen.
    assert run("check-trace", "first", "--rule", "SPY-R22").code == 1


def test_of_a_record_that_breaks_off_the_rest_is_judged(run):
    Path("t").write_bytes(text(recorded(scenario()))[:-30])
    result = run("check-trace", "t")
    assert result.code == 3
    assert (
        "t: line 34: the last line is truncated; the rest of that run is not judged\n" in result.out
    )
    assert "t: 1 run, 12 steps\n" in result.out
    assert "against sound: inconclusive, because the record ends too early" in result.out


def test_a_pattern_of_rules_need_not_be_exercised_in_full(run):
    written(Path("t"), recorded(scenario()))
    whole = run("check-trace", "t", "--rule", "SPY-*")
    assert "not exercised" in whole.out
    assert whole.code == 0
    idle = re.search(r"not exercised +(SPY-R\d+)", whole.out)
    assert idle is not None
    assert run("check-trace", "t", "--rule", idle[1]).code == 3


def test_a_trace_that_shows_hardly_anything_says_so(run):
    lines = recorded(scenario())
    lines[1]["observes"] = []
    for line in lines:
        if "step" in line:
            line["step"] = {key: line["step"][key] for key in ("kind", "scheduled")}
    written(Path("t"), [*lines, {"op": "stop"}, {"ok": True}])
    result = run("check-trace", "t")
    assert result.code == 0, result
    assert re.search(r"conforms, but it shows enough for only \d+ of \d+ rules \(", result.out)


def test_a_step_without_its_reply_is_no_pass_and_no_excuse(run):
    lines = recorded(scenario())
    place = line_of_step(lines, 3)
    written(Path("t"), lines[:place])
    cut = run("check-trace", "t", "--json", "v.json")
    assert cut.code == 3
    assert f't: line {place}: its "step" has no reply: the record ends there, or the' in cut.out
    verdict = json.loads(Path("v.json").read_bytes())
    assert verdict["exit_code"] == 3
    assert verdict["cut"].startswith(f"t: line {place}: ")
    lost = bent(lines[:place], 1, lambda step: step.update(waiting=["ghost"]))
    written(Path("t"), lost)
    assert run("check-trace", "t").code == 1


def test_a_record_that_ends_after_a_step_with_requests_unfinished_is_no_pass(run):
    lines = recorded(scenario())
    place = line_of_step(lines, 3) - 1
    written(Path("t"), lines[:place])
    result = run("check-trace", "t")
    assert result.code == 3
    assert (
        f"t: line {place - 1}: the record of run 1 ends while 3 requests are unfinished;"
        in result.out
    )
    assert "against sound: inconclusive, because the record ends too early" in result.out
    stop = [{"op": "stop"}, {"ok": True}]
    written(Path("t"), [*lines[:place], *stop])
    assert run("check-trace", "t").code == 0
    # Another start may be that of a server that was restarted after a crash.
    written(Path("t"), lines[:place], lines)
    result = run("check-trace", "t")
    assert result.code == 3
    words = f"t: line {place - 1}: the record of run 1 ends while 3 requests are unfinished; the"
    assert f"{words} rest of that run is not judged" in result.out
    written(Path("t"), [*lines[:place], *stop], lines)
    assert run("check-trace", "t").code == 0


def test_a_record_that_stops_before_the_first_step_is_no_pass(run):
    lines = recorded(scenario(request("a", 0, 5)))
    first = next(number for number, line in enumerate(lines) if line.get("op") == "step")
    written(Path("t"), [*lines[:first], {"op": "stop"}, {"ok": True}])
    result = run("check-trace", "t")
    assert (result.code, result.err) == (3, "")
    assert "inconclusive, because no step is recorded (" in result.out.splitlines()[-1]


def test_a_record_that_ends_after_an_abort_is_no_pass(run):
    # The scheduler may have hung in the step that would have reported the abort.
    lines = recorded(scenario(request("a", 0, 5, 20, abort_at=3)))
    place = next(place for place, line in enumerate(lines) if line.get("op") == "abort")
    written(Path("t"), lines[: place + 2])
    result = run("check-trace", "t")
    assert result.code == 3
    words = f"t: line {place + 1}: the record of run 1 ends while 1 request is unfinished;"
    assert words in result.out
    written(Path("t"), lines)
    assert run("check-trace", "t").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument 'FILE'; "),
        (["none"], "none: cannot be read (No such file or directory)"),
        (["empty"], "FILE: empty is empty; valid: a trace with one JSON object per line"),
        (["t", "--system", "x"], "--system: 'x' is not a system; valid: spyre, "),
        (["t", "--system", "vllm", "--revision", "2.1.2"], "--revision: '2.1.2' is not a revision"),
        (["t", "--revision", "x"], "--revision: 'x' is not a revision; valid: spyre: sound, "),
        (["t", "--revision", "head"], "t: line 1: $.revision: 'head' is not a revision of spyre"),
        (["t", "--rule", "SPY-R99"], "no rule 'SPY-R99'; did you mean"),
        (["t", "--rule", ","], "--rule: ',' names no rule; "),
        (
            ["t", "--rule", "ALL-R07"],
            "--rule: ALL-R07 compares with the model; valid only together with --exp",
        ),
        (["t", "--max-failures", "-1"], "--max-failures: -1; valid: at least 0"),
        (["t", "--json", "no/f"], "--json: no/f: the folder no does not exist"),
        (["t", "--json", "t"], "--json: t is the trace itself; valid: another file"),
    ],
)
def test_wrong_words_are_one_line(run, words, message):
    written(Path("t"), recorded(scenario()))
    Path("empty").touch()
    run("check-trace", *words).refused(message)


def test_a_name_that_comes_twice_in_a_run_is_one_line(run):
    lines = recorded(scenario())
    written(Path("t"), [*lines[:4], *lines[2:4]])
    result = run("check-trace", "t")
    assert result.code == 2
    assert '$.request.id: "a" is already the id of an earlier request' in result.err


def test_ctrl_c_leaves_a_verdict_on_what_was_read(run, monkeypatch):
    def interrupted(*words):
        for number, event in enumerate(read_trace(*words)):
            if number == 9:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr("schedproof.gate.cli.check_trace.read_trace", interrupted)
    written(Path("t"), recorded(scenario()))
    result = run("check-trace", "t")
    assert result.code == 3
    assert "schedproof: interrupted: the verdict covers only the lines before line 19" in result.err
    assert "t: 1 run, 5 steps\n" in result.out


SHAPES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=25)
@given(SHAPES, st.sampled_from(["sound", "2.1.2"]), st.integers(0, 12), st.booleans())
def test_what_a_model_does_is_recorded_and_holds(shapes, revision, gives_up, inside):
    requests = [
        request(f"r{number}", arrival, prompt, most, output_len=min(most, early))
        for number, (arrival, prompt, most, early) in enumerate(shapes)
    ]
    first = request("r0", *shapes[0][:3], abort_at=gives_up, abort_inside=inside)
    run_of = scenario(first, *requests[1:], revision=revision)
    lines = recorded(run_of)
    for trace in (lines, without_output_lens(lines)):
        judge, [only] = judged(text(trace), explain=True)
        assert judge.cut is None
        known = {"SPY-R35"} if revision == "2.1.2" else set()
        assert {failure.rule for failure in only.broken} <= known
        assert only.explainer is not None
        match = only.explainer.match_of(revision)
        assert match is not None
        assert match.departed is None


def judged_or_one_line(data):
    """Nothing but a FileError is raised, and it says where in a line."""
    try:
        judged(data, explain=True)
    except FileError as error:
        return str(error).startswith("t: line ") and "\n" not in str(error)
    return True


DAMAGED = text(recorded(scenario()))[:6000]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(DAMAGED)),
            st.integers(0, 12),
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from(
                    [
                        b"\n",
                        b"-1",
                        b"null",
                        b"{}",
                        b"[]",
                        b'"a"',
                        b"9" * 30,
                        b"1e5",
                        b"1.5",
                        b"true",
                    ]
                ),
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_damaged_trace_is_judged_or_one_line(damages):
    data = DAMAGED
    for place, length, instead in damages:
        data = data[:place] + instead + data[place + length :]
    assert judged_or_one_line(data)


VALUES = st.sampled_from(
    [
        *("null", "0", "-1", "9" * 30, "1.5", "true", "[]", "{}"),
        *('""', '"a"', '"zz"', '["zz"]', '{"zz": 1}'),
    ]
)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.data())
def test_a_trace_with_other_values_is_judged_or_one_line(data):
    lines: list[Any] = [json.loads(line) for line in DAMAGED.splitlines()[:-1]]
    for _ in range(data.draw(st.integers(1, 3))):
        at: Any = data.draw(st.sampled_from(lines))
        while isinstance(at, dict | list) and at:
            keys = [*at] if isinstance(at, dict) else [*range(len(at))]
            key = data.draw(st.sampled_from(keys))
            if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
                at[key] = json.loads(data.draw(VALUES))
                break
            at = at[key]
    assert judged_or_one_line(text(lines))


def endless(period, times):
    """The same requests again and again under other names, in one run."""
    begin = text(period[:2])
    yield begin
    body = text(period[2:]).decode()
    for number in range(times):
        again = body
        for name in ("a", "b", "c"):
            again = again.replace(f'"{name}"', f'"{name}{number}"')
        yield again.encode()


class Feed(io.RawIOBase):
    """What is read as it is made."""

    def __init__(self, parts):
        self._parts = parts
        self._left = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        self._left = self._left or next(self._parts, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "explain"), [("sound", False), ("2.1.2", True)])
def test_memory_stays_flat_however_long_a_run_is(revision, explain):
    """As much after 1,800 steps as after 180: nothing is kept of a step that was judged."""
    period = recorded(scenario(revision=revision))
    lines = io.BufferedReader(Feed(endless(period, 150)))
    source = Source("t", lines, lambda: 0, None)  # type: ignore[arg-type]
    runs: list[TraceRun] = []
    judge = TraceJudge("t", [], explain, lambda run: None, runs.append, lambda words: None)
    held = []

    def counted():
        for event in read_trace(source):
            if judge.runs and judge.judged["spyre", revision].steps in (180, 1_800):
                gc.collect()  # tuples that were given back are kept for the next ones
                held.append(tracemalloc.get_traced_memory()[0])
            yield event

    tracemalloc.start()
    try:
        judge.follow(counted())
    finally:
        tracemalloc.stop()
    [only] = runs
    assert (only.steps, only.broken) == (1_950, [])
    assert held[-1] - held[0] < 20_000  # bytes; every step by itself takes a thousand
