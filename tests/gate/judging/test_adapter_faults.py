"""What only an adapter can have done is no verdict about the scheduler: exit code 3."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schedproof.gate.judging.judge import judge
from schedproof.gate.targets import jsonl
from schedproof.gate.targets.target_spec import is_adapters_fault, parse_target
from schedproof.properties.rules.predicate import Broken

from ..build import Toy, entry
from ..toys import broken_scenario


class CallsAllDecode(Toy):
    """Names each step a decode."""

    def bend(self, step):
        if step["kind"] == "prefill":
            step["kind"] = "decode"


class AlsoLoses(CallsAllDecode):
    """Loses who waits, too."""

    def bend(self, step):
        super().bend(step)
        if len(step["running"]) > 1:
            step["waiting"] = ["ghost"]


def test_a_wrong_kind_is_the_adapters_and_says_what_to_say(gate):
    verdict = judge(gate(CallsAllDecode(), "ALL-R13 ALL-R03", examples=20))
    judged = entry(verdict, "ALL-R13")
    assert judged.status == "inconclusive"
    words = "ADAPTER: kind is decode in step 0, but r0 has emitted no token yet: say prefill"
    assert judged.message == words
    [fault] = verdict.faults
    assert (fault.kind, fault.accept, verdict.exit_code) == ("adapter", "", 3)
    assert Path(fault.scenario).exists()


def test_every_command_blames_the_adapter(run, toy):
    target = toy("AllDecode")
    place = broken_scenario()
    words = "ADAPTER: kind is decode in step 0, but r0 has emitted no token yet: say prefill"
    run_corpus = ["corpus", "run", "--corpus", "entries"]
    commands: list[tuple[list[str], int, str]] = [
        (["replay", place, "--perfetto", "p.json", "--trace", "t.jsonl"], 3, "ADAPTER ALL-R13"),
        (["check-trace", "t.jsonl", "--perfetto", "q.json"], 3, "ADAPTER: run"),
        (["show", place, "-o", "page.html"], 3, "page.html: ADAPTER: ALL-R13 was broken in step 0"),
        (["show", "t.jsonl", "-o", "page.html"], 3, "page.html: ADAPTER: ALL-R13 was broken"),
        (["corpus", "add", place], 2, f"{place}: {words}; correct the adapter first"),
        (run_corpus, 3, f"inconclusive    entries/x.json: {words}"),
        (["campaign", "--system", "spyre", "--items", "1", "--workers", "1"], 3, "ADAPTER ALL-R13"),
    ]
    data = json.loads(Path(place).read_text()) | {"origin": {"rule": "ALL-R13"}}
    Path("entries").mkdir()
    Path("entries/x.json").write_text(json.dumps(data))
    for command, code, says in commands:
        result = run(*command, *(["--target", target] if "t.jsonl" not in command[1] else []))
        assert (result.code, says in result.out + result.err) == (code, True), (command, result)
        assert "internal error" not in result.err
    assert "found: ADAPTER: ALL-R13" in result.out


def test_a_campaign_prints_no_escape_sequence_of_a_target(run, toy):
    words = ["--system", "spyre", "--items", "1", "--workers", "1", "--target", toy("Crash")]
    result = run("campaign", *words)
    assert "BROKEN ALL-R01" in result.out
    assert "two is" in result.out
    assert "\x1b" not in result.out + result.err


def test_what_the_scheduler_does_is_found_behind_it(gate):
    verdict = judge(gate(AlsoLoses(), "ALL-R13 ALL-R03", examples=20))
    assert {fault.kind for fault in verdict.faults} == {"adapter", "request"}
    assert entry(verdict, "ALL-R03").status == "violated"
    assert (entry(verdict, "ALL-R13").status, verdict.exit_code) == ("inconclusive", 1)


class OtherNames:
    """An adapter whose parameters have names of their own."""

    def start(self, name, which, options):
        return {"ok": True, "name": name, "version": which, "observes": [*options]}

    def add(self, req):
        return {"ok": True, "id": req["id"]}

    def abort(self, who, while_it_runs=False):
        return {"ok": True, "who": who, "inside": while_it_runs}

    def step(self):
        raise TypeError("unsupported operand")


def test_the_names_of_parameters_are_the_adapters_own():
    target = OtherNames()
    assert jsonl.answer(target, b'{"op": "add", "request": {"id": "r0"}}')["id"] == "r0"
    aborted = jsonl.answer(target, b'{"op": "abort", "id": "r0", "inside": true}')
    assert (aborted["who"], aborted["inside"]) == ("r0", True)
    started = b'{"op": "start", "revision": "1", "system": "vllm", "config": {"a": 1}}'
    assert jsonl.answer(target, started)["name"] == "vllm"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"op": "stop"}', "OtherNames has no stop; valid: a method stop(self)"),
        (b'{"op": "add", "request": {}}', "valid: a method add(self, request)"),
    ],
)
def test_a_method_that_cannot_be_called_is_the_adapters_fault(line, says):
    class TwoParameters(OtherNames):
        def add(self, req, more):
            return {"ok": True}

    target = OtherNames() if b"stop" in line else TwoParameters()
    reply = jsonl.answer(target, line)
    assert reply["error"] == "protocol"
    assert says in reply["message"]


def test_a_type_error_inside_a_method_is_a_crash_of_the_scheduler():
    reply = jsonl.answer(OtherNames(), b'{"op": "step"}')
    assert (reply["error"], reply["message"]) == ("crashed", "TypeError: unsupported operand")


@pytest.mark.parametrize(
    ("target", "behind", "expected"),
    [
        ("vllm==0.19.1", ("V1-I4",), False),
        ("vllm==0.19.1", (), True),
        ("cmd:server", ("V1-I4",), True),
    ],
)
def test_a_release_that_broke_a_rule_before_is_described_rightly(target, behind, expected):
    first = Broken("ALL-R13", 4, "kind is prefill in step 4", by_adapter=True)
    assert is_adapters_fault(first, behind, parse_target(target)) is expected
    assert not is_adapters_fault(first._replace(by_adapter=False), behind, parse_target(target))


def test_a_class_of_the_users_in_a_release_is_described_rightly():
    first = Broken("ALL-R13", 4, "kind is prefill in step 4", by_adapter=True)
    spec = replace(parse_target("vllm==0.19.1"), scheduler="/here/mine.py:Mine")
    assert not is_adapters_fault(first, (), spec)
