"""The command line: one line for every wrong input, a verdict for every target, an exit code."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schedproof import __version__
from schedproof.gate import probing, verdict
from schedproof.gate.profiles import PROFILES, Profile
from schedproof.gate.reports import junit
from schedproof.gate.scenario_file import FileError
from schedproof.spec.catalogue import Rule, load, select

from .build import Result, Run

PATIENCE = 60.0  # seconds; for what must happen, however busy the machine
TOYS = """
import os, sys, time
from schedproof.gate.targets.jsonl import serve
from schedproof.model.target import ModelTarget

REAL = os.dup(1)
if __name__ != "__main__":
    print("the module prints when it is imported")


class Toy(ModelTarget):
    def start(self, system, revision, config):
        open("toy.pid", "w").write(str(os.getpid()))
        self.config = config
        return super().start(system, revision, config)

    def step(self):
        reply = super().step()
        self.bend(reply, reply["step"])
        return reply

    def bend(self, reply, step):
        if len(step["running"]) > 1:
            self.when_two_run(reply, step)

    def when_two_run(self, reply, step): pass


class Garbage(Toy):
    def bend(self, reply, step): os.write(REAL, b"Loading model ...\\n")
class Missing(Toy):
    def bend(self, reply, step): del step["waiting"]
class NoOk(Toy):
    def bend(self, reply, step): del reply["ok"]
class IdleAndBusy(Toy):
    def bend(self, reply, step): step["kind"] = "idle"
class WrongType(Toy):
    def bend(self, reply, step): step["tkv"] = "many"
class LateGarbage(Toy):
    def when_two_run(self, reply, step): del step["waiting"]
class Observes(Toy):
    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"observes": "tkv"}
class Little(Toy):
    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"observes": []}
class Refuses(Toy):
    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "block_size must be\\n16"}
class LargeBlocks(Toy):
    def start(self, system, revision, config):
        if config["block_size"] < 64:
            return {"ok": False, "error": "config", "message": "block_size must be 64"}
        return super().start(system, revision, config)
class Release(Toy):
    def start(self, system, revision, config):
        return super().start(system, "2.5.2", config)
class CannotStart(Toy):
    def start(self, system, revision, config): raise ValueError("no device")
class Rejects(Toy):
    def add(self, request): return {"ok": False, "error": "rejected", "message": "no\\nguests"}
class Crash(Toy):
    def when_two_run(self, reply, step): raise ValueError("two is \\x1b[31ma crowd")
class Hang(Toy):
    def when_two_run(self, reply, step): time.sleep(1000)
class Exit(Toy):
    def when_two_run(self, reply, step):
        os.write(2, b"assert failed\\n")
        os._exit(7)
class Ghost(Toy):
    def when_two_run(self, reply, step): step["waiting"] = ["ghost"]
class Slow(Toy):
    def bend(self, reply, step):
        open("slow", "w").close()
        time.sleep(0.02)
class CrashThenSlow(Toy):
    def when_two_run(self, reply, step):
        if self.config["block_size"] < 64: raise ValueError("two is a crowd")
        open("slow", "w").close()
        time.sleep(0.02)

def no_target(): return object()
def raises(): return {}["nothing"]
not_callable = 3

if __name__ == "__main__":
    serve(globals()[sys.argv[1]]())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, an empty cache, and budgets so small that a gate takes a moment."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 10, 20, corpus_steps=2_000))
    return here


@pytest.fixture
def toy(folder: Path) -> Callable[[str], str]:
    """The TARGET word for a misbehaving target."""
    (folder / "toys.py").write_text(TOYS, encoding="utf-8")
    return lambda name: f"cmd:{shlex.quote(sys.executable)} toys.py {name}"


def gate_json(run: Run, *words: str) -> tuple[Result, Any]:
    result = run("gate", *words, "--profile", "quick", "--json", "v.json")
    return result, json.loads(Path("v.json").read_bytes())


def load_rules(*names: str) -> tuple[Rule, ...]:
    return select(load("spyre"), names)


def statuses(data: Any) -> dict[str, str]:
    return {entry["id"]: entry["status"] for entry in data["rules"]}


def spyre_scenario(**changes: Any) -> dict[str, Any]:
    return {
        "format": "schedproof/scenario@1",
        "system": "spyre",
        "revision": "sound",
        "config": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "requests": [
            {"id": "r0", "arrival": 0, "prompt": [["r0", 5]], "max_tokens": 6},
            {"id": "r1", "arrival": 1, "prompt": [["r1", 9]], "max_tokens": 3},
        ],
    } | changes


def written(path: str, **changes: Any) -> str:
    Path(path).write_text(json.dumps(spyre_scenario(**changes)), encoding="utf-8")
    return path


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


# Wrong input


WRONG = [
    (["--nope"], "No such option: --nope"),
    (["gate", "--nope"], "No such option: --nope; schedproof gate --help"),
    (["nope"], "No such command 'nope'; schedproof --help"),
    (["gate", "--system", "foo"], "--system: 'foo' is not a system; valid: spyre"),
    (["rules", "--system", "foo"], "--system: 'foo' is not a system; valid: spyre"),
    (["gate", "--revision", "foo"], "--revision: 'foo' is not a revision of spyre; valid: sound"),
    (
        ["gate", "--revision", "2.6.3"],
        "--revision: '2.6.3' is not a revision of spyre; valid: sound, documented, 2.1.2, 2.5.2",
    ),
    (["gate", "--rule", "SPY-R70"], "no rule 'SPY-R70'; did you mean SPY-R"),
    (["gate", "--rule", "SPY-R07,NOPE"], "no rule 'NOPE'"),
    (["gate", "--rule", ","], "--rule: ',' names no rule"),
    (["gate", "--rule", "ALL-R07"], "--rule: ALL-R07 does not apply to revision sound"),
    (
        ["gate", "--revision", "2.1.2", "--rule", "ALL-R07"],
        "--rule: ALL-R07 compares a target with the model",
    ),
    (["rules", "NOPE"], "no rule 'NOPE'"),
    (["gate", "--profile", "fast"], "--profile: 'fast'; valid: quick, ci, nightly"),
    (["gate", "--seed", "-1"], "--seed: -1; valid: at least 0"),
    (["gate", "--seed", "x"], "'--seed'"),
    (["gate", "--max-failures", "0"], "--max-failures: 0; valid: at least 1"),
    (["gate", "--step-limit", "0"], "--step-limit: 0.0; valid: at least 0.1"),
    (["gate", "--step-limit", "nan"], "--step-limit: nan; valid: at least 0.1"),
    (["gate", "a", "b"], "unexpected extra argument"),
    (["gate", ""], "TARGET '' is not understood; valid: model, MODULE:FACTORY"),
    (["gate", "foo"], "TARGET 'foo' is not understood; valid: model, MODULE:FACTORY"),
    (["gate", "foo:"], "TARGET 'foo:' is not understood"),
    (["gate", "a-b:c"], "TARGET 'a-b:c' is not understood"),
    (["gate", "cmd:"], "no command after cmd:; valid:"),
    (["gate", "cmd:  "], "no command after cmd:; valid:"),
    (["gate", "cmd:'x"], "No closing quotation; valid:"),
    (["gate", "cmd:/no/such/scheduler --fast"], "'/no/such/scheduler': No such file or directory"),
    (["gate", "sendnn-inference==9.9"], "version '9.9' is not supported; supported are 2.0.0"),
    (["gate", "vllm==9.9.9"], "vllm: version '9.9.9' is not supported; supported are 0.19.1, "),
    (["gate", "sendnn-inference==2.1.2", "--offline"], "not installed: Python environment"),
    (["gate", "--json", "no/folder/v.json"], "--json: no/folder/v.json: the folder no/folder does"),
    (["gate", "--json", "."], "--json: . is a folder; valid: a file"),
    (["gate", "--junit", "."], "--junit: . is a folder; valid: a file"),
    (["gate", "--sarif", "no/s"], "--sarif: no/s: the folder no does not exist"),
    (["gate", "--ndjson", "file/e"], "--ndjson: file/e: the folder file does not exist"),
    (["gate", "--junit", "x", "--sarif", "x"], "--sarif: x is the file of --junit, too; valid: "),
    (["gate", "--out", "a\udcff"], "--out: 'a\\udcff' is not UTF-8"),
    (["gate", "cmd:a\udcff"], "TARGET: 'cmd:a\\udcff' is not UTF-8"),
    (["gate", "--out", "file"], "--out: file: file is not a folder"),
    (["gate", "--out", "file/below"], "--out: file/below: "),
    (["replay"], "Missing argument"),
    (["replay", "nofile.json"], "nofile.json: cannot be read (No such file or directory)"),
    (["replay", "file"], "file: not JSON"),
    (["serve", "foo"], "TARGET 'foo' is not understood"),
    (["serve", "no.such_module:make"], "cannot import 'no.such_module'"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_input_is_one_line_and_exit_2(
    words: list[str], says: str, run: Run, folder: Path
) -> None:
    (folder / "file").write_text("not json\n")
    result = run(*words)
    assert result.code == 2
    assert result.err.startswith("schedproof: ")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert [entry.name for entry in folder.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"format": "schedproof/scenario@2"},
            '$.format: "schedproof/scenario@2"; supported: "schedproof/scenario@1"',
        ),
        ({"colour": 1}, "colour"),
        ({"requests": []}, "$.requests"),
        ({"config": {"block_sizes": 4}}, "$.config.block_sizes: unknown key; valid: block_size"),
        ({"config": {"block_size": 3, "chunk_size": 8}}, "$.config.chunk_size: 8 is not a multi"),
        ({"config": {"prefix_caching": "yes"}}, "$.config.prefix_caching: 'yes': Expected `bool`"),
        (
            {"config": {"long_output_priority": True}},
            "$.config.long_output_priority: true belongs to decode pausing, which revision sound",
        ),
        (
            {"revision": "2.5.2", "config": {"num_blocks": 511}},
            "$.config.num_blocks: 511 cannot hold a request of max_model_len tokens",
        ),
        (
            {"revision": "2.1.2", "config": {"num_blocks": 2559}},
            "$.config.num_blocks: 2559 can run out in revision 2.1.2; valid: null or at least 2560",
        ),
        (
            {"revision": "2.6.3"},
            "$.revision: '2.6.3' is not a revision of spyre; valid: sound, documented, 2.1.2,",
        ),
        ({"expect": {"violates": ["SPY-R70"]}}, "$.expect.violates: no rule 'SPY-R70'; did you"),
        ({"expect": {"steps": [{"step": 0, "tkvs": 1}]}}, "$.expect.steps[0].tkvs: unknown field"),
    ],
)
def test_a_wrong_scenario_is_one_line_with_file_and_path(
    changes: dict[str, Any], says: str, run: Run
) -> None:
    result = run("replay", written("s.json", **changes))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("schedproof: s.json: ")
    assert says in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("no_such_module:make", "cannot import 'no_such_module'"),
        ("toys:nothing", "toys has no callable 'nothing'"),
        ("toys:not_callable", "toys has no callable 'not_callable'"),
        ("toys:raises", "raises() raised "),
        ("toys:no_target", "no_target() gives a object without start, add, abort, step, stop"),
        ("broken:make", "cannot import 'broken' (SyntaxError: "),
        ("exits:make", "cannot import 'exits' ("),
    ],
)
def test_a_wrong_factory_is_one_line_though_it_runs_in_a_process_of_its_own(
    spec: str, says: str, run: Run, toy: object, folder: Path
) -> None:
    (folder / "broken.py").write_text("def make(:\n")
    (folder / "exits.py").write_text("raise SystemExit(5)\n")
    result = run("gate", spec)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: TARGET '{spec}': ")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert not (folder / "schedproof-out").exists()


def test_a_factory_that_raises_is_named_with_its_line(run: Run, toy: object, folder: Path) -> None:
    line = TOYS.splitlines().index('def raises(): return {}["nothing"]') + 1
    assert f"toys.py, line {line}: KeyError: 'nothing'" in run("gate", "toys:raises").err


def test_no_arguments_show_the_help(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert result.err.startswith("Usage: schedproof")
    assert all(name in result.err for name in ("gate", "replay", "rules", "serve"))


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version") == Result(0, f"schedproof {__version__}\n", "")


# Targets that are none


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Garbage", "more than one reply: 'Loading model"),
        ("Missing", "field waiting is promised in observes, but missing"),
        ("NoOk", 'not an object with "ok" true or false'),
        ("IdleAndBusy", "kind idle with 1 requests scheduled"),
        ("WrongType", "Expected `int | null`, got `str`"),
        ("LateGarbage", "field waiting is promised in observes, but missing"),
    ],
)
def test_a_broken_target_is_neither_a_pass_nor_a_broken_rule(
    name: str, says: str, run: Run, toy: Callable[[str], str]
) -> None:
    if name == "Garbage":
        says = "'step' "  # named as no JSON, or as one reply too many where both are read at once
    result, data = gate_json(run, toy(name))
    assert result.code == data["exit_code"] == 3
    line = next(line for line in result.err.splitlines() if line.startswith("schedproof: "))
    assert line.startswith("schedproof: broken target: at 'step' ")
    assert says in line
    assert says in data["fault"]
    assert "violated" not in statuses(data).values()
    assert "inconclusive" in statuses(data).values()
    assert "conforms" not in result.out
    assert not Path("schedproof-out").exists()


def test_a_start_that_is_no_reply_is_a_broken_target(run: Run, toy: Callable[[str], str]) -> None:
    result = run("gate", toy("Observes"))
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        "schedproof: broken target: at 'start' observes is tkv; valid: a list of field names\n"
    )


def test_a_target_that_refuses_every_configuration_is_exit_2_with_its_words(
    run: Run, toy: Callable[[str], str]
) -> None:
    result = run("gate", toy("Refuses"))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "schedproof: the target refuses the configuration of every scale: "
        "small (block_size must be 16) and short (block_size must be 16) "
        "and tight (block_size must be 16)\n"
    )


def test_a_scale_that_the_target_refuses_is_left_out_and_named(
    run: Run, toy: Callable[[str], str]
) -> None:
    result, data = gate_json(run, toy("LargeBlocks"))
    assert "scale small left out, the target refuses it: block_size must be 64" in result.out
    assert [engine["scale"] for engine in data["engines"]] == [
        "short",
        "production",
        "short",
        "tight",
    ]


def test_a_target_that_raises_at_its_first_start_is_exit_2_with_the_traceback(
    run: Run, toy: Callable[[str], str]
) -> None:
    result = run("gate", toy("CannotStart"))
    assert (result.code, result.out) == (2, "")
    first, *rest = result.err.splitlines()
    assert first == "schedproof: the scheduler raised at 'start': ValueError: no device"
    assert rest[-1] == "  | ValueError: no device"


def test_a_target_that_rejects_every_request_does_not_conform_vacuously(
    run: Run, toy: Callable[[str], str]
) -> None:
    result, data = gate_json(run, toy("Rejects"))
    assert result.code == 3
    by_id = {rule.id: rule for rule in load("spyre")}
    for rule, status in statuses(data).items():
        assert status == ("not_exercised" if by_id[rule].checked else "not_observable"), rule
    assert all(engine["rejected_requests"] > 0 for engine in data["engines"])
    assert "requests refused at the door" in result.out


def test_a_target_that_shows_little_is_judged_by_what_it_shows(
    run: Run, toy: Callable[[str], str]
) -> None:
    result, data = gate_json(run, toy("Little"))
    assert statuses(data)["ALL-R03"] == "not_observable"
    assert "the target does not show running, waiting" in result.out
    assert run("gate", toy("Little"), "--rule", "ALL-R03", "--profile", "quick").code == 3


# Crashes, hangs, exits


@pytest.mark.parametrize(
    ("name", "rule", "says", "details"),
    [
        ("Crash", "ALL-R01", "the scheduler raised at 'step': ValueError", "in when_two_run"),
        ("Exit", "ALL-R01", "it ended with exit code 7", "assert failed"),
        ("Hang", "ALL-R02", "no reply to 'step' within 0.5 s", ""),
    ],
)
def test_crash_hang_and_exit_break_their_rule_and_leave_no_process(
    name: str, rule: str, says: str, details: str, run: Run, toy: Callable[[str], str]
) -> None:
    result, data = gate_json(run, toy(name), "--step-limit", "0.5", "--max-failures", "1")
    assert result.code == data["exit_code"] == 1
    violated = [entry for entry in data["rules"] if entry["status"] == "violated"]
    assert [entry["id"] for entry in violated] == [rule]
    assert says in violated[0]["message"]
    assert f"BROKEN {rule}" in result.out
    assert says in result.out
    assert details in result.out
    assert "\x1b" not in result.out
    assert {finding["engine"] for finding in data["findings"]} == {"corpus", "hypothesis"}
    assert all(Path(finding["scenario"]).is_file() for finding in data["findings"])
    assert is_gone(int(Path("toy.pid").read_text()))


def test_a_crash_counts_though_another_rule_was_chosen(run: Run, toy: Callable[[str], str]) -> None:
    result, data = gate_json(run, toy("Crash"), "--rule", "SPY-R35", "--max-failures", "1")
    assert result.code == 1
    assert statuses(data)["ALL-R01"] == "violated"


def test_a_module_in_this_folder_is_a_target_and_may_print(
    run: Run, toy: object, folder: Path
) -> None:
    _, data = gate_json(run, "toys:Toy", "--max-failures", "1")
    assert "violated" not in statuses(data).values()
    assert data["fault"] is None
    assert data["target"]["spec"] == "toys:Toy"


@pytest.mark.parametrize(
    ("command", "as_printed"), [("model", False), ("Crash", True)], ids=["model", "process"]
)
def test_the_printed_command_breaks_the_same_rule_at_the_same_step(
    command: str, as_printed: bool, run: Run, toy: Callable[[str], str]
) -> None:
    target, options = ("model", ["--revision", "documented"])
    if as_printed:
        target, options = toy(command), ["--step-limit", "7"]
    result, data = gate_json(run, target, *options, "--max-failures", "1")
    finding = data["findings"][0]
    printed = re.findall(r"^  replay:   (.*)$", result.out, re.MULTILINE)[0]
    assert ("--step-limit 7" in printed) == as_printed
    again = subprocess.run(printed, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 1, again
    assert f"BROKEN {finding['rule']}" in again.stdout
    assert f"step {finding['step']}:" in again.stdout
    if not as_printed:
        assert finding["message"] in again.stdout
    assert again.stderr == ""


def test_the_printed_command_checks_the_rules_that_were_chosen(run: Run) -> None:
    words = ("--revision", "documented", "--rule", "SPY-R35,SPY-R07", "--max-failures", "1")
    result = run("gate", *words, "--profile", "quick")
    assert result.code == 1
    assert " --rule SPY-R07,SPY-R35\n" in result.out


# Ctrl-C


@pytest.mark.parametrize(("name", "code"), [("Slow", 3), ("CrashThenSlow", 1)])
def test_ctrl_c_keeps_what_was_found_and_leaves_no_process(
    name: str, code: int, toy: Callable[[str], str], folder: Path
) -> None:
    command = ["schedproof", "gate", toy(name), "--profile", "quick", "--json", "v.json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (folder / "slow").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert err == "schedproof: interrupted: the verdict is about what ran until then\n"
    data = json.loads((folder / "v.json").read_bytes())
    assert data["interrupted"] is True
    assert data["exit_code"] == code
    assert is_gone(int((folder / "toy.pid").read_text()))
    found = [Path(finding["scenario"]) for finding in data["findings"]]
    assert bool(found) == (code == 1)
    assert all(path.is_file() for path in found)


# The verdict


def test_the_verdict_file_has_every_documented_key(run: Run) -> None:
    _, data = gate_json(run, "--revision", "documented")
    read = msgspec.convert(data, verdict.Verdict, strict=True)
    assert data["format"] == "schedproof/verdict@1"
    assert json.loads(msgspec.json.encode(read)) == data
    for name, kind, found in (
        ("verdict", verdict.Verdict, data),
        ("target", verdict.TargetInfo, data["target"]),
        ("engine", verdict.EngineRun, data["engines"][0]),
        ("rule", verdict.RuleVerdict, data["rules"][0]),
        ("finding", verdict.Finding, data["findings"][0]),
    ):
        assert found.keys() == set(kind.__struct_fields__), name
    assert set(statuses(data).values()) >= {"held", "violated", "not_observable"}


def test_what_is_known_of_a_release_is_printed_as_a_divergence_with_the_rule(
    run: Run, toy: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(40, 0, 20, corpus_steps=0))
    words = ("--revision", "sound", "--rule", "SPY-R22", "--max-failures", "1")
    result, data = gate_json(run, toy("Release"), *words)
    assert (result.code, result.err) == (1, "")
    [rule] = load_rules("SPY-R22")
    known = f"{rule.divergences[0].releases}: {rule.divergences[0].says}"
    assert [entry["divergence"] for entry in data["rules"]] == [known]
    assert [finding["divergence"] for finding in data["findings"]] == [known]
    lines = result.out.splitlines()
    assert f"  known:    {known}" in lines
    start = next(n for n, line in enumerate(lines) if line.startswith("diverges"))
    assert lines[start].startswith(f"diverges       SPY-R22  {rule.title}: ")
    assert lines[start + 1 : start + 3] == [f"    the rule: {rule.says}", f"    known of {known}"]
    assert "does not conform (0 held, 1 broken (1 known divergence); seed 0)" in lines[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("model", "--revision", "documented", "--rule", "SPY-R07,ALL-R03"),
        ("Ghost", "--rule", "SPY-R07,ALL-R03"),
    ],
    ids=lambda words: words[0],
)
def test_the_same_seed_gives_the_same_verdict_file_byte_for_byte_but_for_the_time(
    words: tuple[str, ...], toy: Callable[[str], str]
) -> None:
    target, *options = words
    target = target if target == "model" else toy(target)
    command = ["gate", target, *options, "--profile", "quick", "--seed", "5", "--json", "v.json"]
    files = []
    for hash_seed in ("1", "2"):
        done = small_gate(*command, PYTHONHASHSEED=hash_seed)
        assert (done.returncode, done.stderr) == (1, b"")
        written = Path("v.json").read_bytes()
        timed = re.compile(rb'"(seconds|found_after|shrunk_in)": [0-9.e-]+')
        files.append(timed.sub(rb'"\1": 0', written))
    assert json.loads(files[0])["findings"]
    assert files[0] == files[1]


def test_all_reports_are_of_one_gate(run: Run, folder: Path) -> None:
    asked = ("--junit", "j.xml", "--sarif", "s.sarif", "--ndjson", "e.ndjson", "--github")
    result, data = gate_json(run, "--revision", "documented", *asked)
    assert (result.code, result.err) == (1, "")
    paths = [finding["scenario"] for finding in data["findings"]]
    lines = (folder / "e.ndjson").read_bytes().splitlines()
    assert [event for line in lines if (event := json.loads(line))["event"] == "verdict"] == [
        json.loads(lines[-1])
    ]
    assert json.loads(lines[-1])["verdict"] == data
    results = json.loads((folder / "s.sarif").read_bytes())["runs"][0]["results"]
    where = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in results]
    assert where == [{"uri": path} for path in paths]
    assert re.findall("^::error file=([^,]*),", result.out, re.MULTILINE) == paths
    assert b"replay:   schedproof replay schedproof-out/SPY-R07-" in (folder / "j.xml").read_bytes()


def test_a_report_that_cannot_be_written_is_named_and_the_verdict_is_told_all_the_same(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise FileError("j.xml: cannot be written to (No space left on device)")

    monkeypatch.setattr(junit, "write", full)
    result, data = gate_json(run, "--rule", "SPY-R07", "--junit", "j.xml")
    assert result.code == 2
    assert result.err == "schedproof: j.xml: cannot be written to (No space left on device)\n"
    assert "against sound: conforms" in result.out
    assert data["exit_code"] == 0


def test_a_gate_that_is_killed_leaves_what_it_had_reported(
    toy: Callable[[str], str], folder: Path
) -> None:
    command = ["schedproof", "gate", toy("CrashThenSlow"), "--profile", "quick"]
    with subprocess.Popen(
        [*command, "--ndjson", "e.ndjson"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (folder / "slow").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            process.kill()
    events = [json.loads(line) for line in (folder / "e.ndjson").read_bytes().splitlines()]
    found = [event for event in events if event["event"] == "found"]
    assert events[0]["event"] == "began"
    assert found
    assert all(Path(event["finding"]["scenario"]).is_file() for event in found)


def test_rules_may_be_given_by_commas_or_by_repetition(run: Run) -> None:
    _, commas = gate_json(run, "--rule", "SPY-R07, SPY-R26")
    _, repeated = gate_json(run, "--rule", "SPY-R26", "--rule", "SPY-R07")
    assert list(statuses(commas)) == list(statuses(repeated)) == ["SPY-R26", "SPY-R07"]
    assert statuses(commas) == statuses(repeated)


@pytest.mark.parametrize(
    ("rule", "status"), [("SPY-R01", "not_observable"), ("SPY-R24", "not_exercised")]
)
def test_a_chosen_rule_that_is_not_checked_is_no_pass(
    rule: str, status: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROFILES, "quick", Profile(1, 0, 0, corpus_steps=0))
    result, data = gate_json(run, "--rule", rule)
    assert statuses(data) == {rule: status}
    assert result.code == 3
    assert "inconclusive" in result.out


def test_the_sound_model_conforms(run: Run) -> None:
    result, data = gate_json(run)
    assert (result.code, result.err) == (0, "")
    assert "sound against sound: conforms" in result.out.splitlines()[-1]
    by_id = {rule.id: rule for rule in load("spyre")}
    for rule, status in statuses(data).items():
        valid = {"held", "not_exercised"} if by_id[rule].checked else {"not_observable"}
        assert status in valid, rule
    assert not Path("schedproof-out").exists()


# replay


def test_a_scenario_that_holds_shows_its_steps_and_is_exit_0(run: Run) -> None:
    result = run("replay", written("s.json", expect={"holds": True}))
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0].startswith("step     0 prefill r0+5")
    assert result.out.splitlines()[-1] == (
        "no rule is broken in 8 steps (24 of 32 rules were at stake)"
    )
    assert len(run("replay", "s.json", "--quiet").out.splitlines()) == 1


def broken_scenario(run: Run, **changes: Any) -> str:
    """A counterexample to the document, found by the gate."""
    run("gate", "--revision", "documented", "--profile", "quick", "--max-failures", "1")
    found = sorted(Path("schedproof-out").glob("*.json"), key=lambda path: path.stat().st_size)
    data = json.loads(found[0].read_bytes()) | changes
    Path("s.json").write_text(json.dumps(data), encoding="utf-8")
    return "s.json"


def test_a_scenario_that_breaks_a_rule_shows_all_about_it(run: Run) -> None:
    result = run("replay", broken_scenario(run), "--quiet")
    assert (result.code, result.err) == (1, "")
    for part in (
        "BROKEN SPY-R07 batch × tkv within the limit",
        "rule:     In every decode step",
        "source:   Spyre scheduling page",
        "config:   spyre documented, block_size",
        "scenario: s.json",
        "replay:   schedproof replay s.json\n",
    ):
        assert part in result.out
    assert re.search(r"step \d+:  .*\d+", result.out)
    assert "expected" not in result.out


def release_scenario(config: dict[str, Any], *requests: dict[str, Any]) -> dict[str, Any]:
    small = {"block_size": 4, "chunk_size": 8, "max_num_seqs": 4, "max_model_len": 64}
    return {"revision": "2.5.2", "config": small | config, "requests": list(requests)}


@pytest.mark.parametrize(
    ("scenario", "rule", "why"),
    [
        (
            release_scenario(
                {"max_batch_tkv": 64},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 33]], "max_tokens": 20},
                {"id": "r1", "arrival": 0, "prompt": [["r1", 1]], "max_tokens": 2},
                {"id": "r2", "arrival": 0, "prompt": [["r2", 1]], "max_tokens": 1},
            ),
            "SPY-R52",
            [
                "whoever was decoding has left, r0 is paused and nobody runs: an empty batch",
                "admits the next prefill before it is asked whether someone is paused",
            ],
        ),
        (
            release_scenario(
                {"max_batch_tkv": 256, "num_blocks": 20},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 8]], "max_tokens": 40, "abort_at": 3},
                {"id": "r1", "arrival": 4, "prompt": [["r1", 8]], "max_tokens": 40},
            ),
            "SPY-R35",
            [
                "step 3: r0 is aborted before the decision, and 9 blocks stay promised to it for "
                "ever: promises are given back to those who have finished since the decision",
                "step 4: r1 needs 12 blocks of 20, 9 of them are promised to nobody",
            ],
        ),
        (
            release_scenario(
                {"max_batch_tkv": 256, "chunk_size": 16, "prefix_caching": True},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 4]], "max_tokens": 1},
                {
                    **{"id": "r1", "arrival": 0, "prompt": [["r0", 4], ["r1", 28]]},
                    **{"max_tokens": 2, "abort_at": 2},
                },
                {
                    **{"id": "r2", "arrival": 0, "prompt": [["r0", 4], ["r1", 28], ["r2", 1]]},
                    **{"max_tokens": 2},
                },
            ),
            "ALL-R08",
            [
                "step 2: r1 is aborted with 20 tokens published and 16 computed; the blocks in "
                "between can be found all the same"
            ],
        ),
    ],
    ids=["forgotten paused", "lost blocks", "published ahead"],
)
def test_a_broken_rule_of_a_release_is_explained(
    scenario: dict[str, Any], rule: str, why: list[str], run: Run
) -> None:
    result = run("replay", written("s.json", **scenario), "--quiet", "--rule", rule)
    assert result.code == 1
    assert f"BROKEN {rule}" in result.out
    explained = result.out.partition("  why:\n")[2].partition("  scenario: ")[0]
    assert [line.removeprefix("    ") for line in explained.splitlines()] == why


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ({"violates": ["SPY-R07"]}, "as expected: SPY-R07 broke\n"),
        ({"violates": ["SPY-R35"]}, "not as expected: SPY-R07 broke, expected SPY-R35\n"),
        ({"holds": True}, "not as expected: SPY-R07 broke, expected that every rule holds\n"),
    ],
)
def test_an_expectation_is_compared_and_a_broken_rule_stays_exit_1(
    expect: dict[str, Any], says: str, run: Run
) -> None:
    result = run("replay", broken_scenario(run, expect=expect), "--quiet")
    assert result.code == 1
    assert result.out.splitlines(keepends=True)[-1] == says


def test_a_rule_that_was_expected_to_break_and_holds_is_exit_1(run: Run) -> None:
    result = run("replay", written("s.json", expect={"violates": ["SPY-R07"]}), "--quiet")
    assert result.code == 1
    assert result.out == "not as expected: no rule broke, expected SPY-R07\n"


def test_a_step_that_differs_is_named_with_its_cell_and_exit_1(run: Run) -> None:
    steps = [
        {"step": 0, "kind": "prefill", "scheduled": {"r0": 5}, "blocks": {"r0": [1, 2]}},
        {"step": 1, "scheduled": {"r1": 8}, "tkv": 7, "blocks": {"r0": [1, 2], "r1": [3, 4]}},
    ]
    result = run("replay", written("s.json", expect={"steps": steps}), "--quiet")
    assert result.code == 1
    lines = [line for line in result.out.splitlines() if line.startswith("not as expected")]
    assert "not as expected: step 1: scheduled is " in "\n".join(lines)
    assert not any("step 0" in line for line in lines)


def test_a_chosen_rule_that_a_replay_does_not_exercise_is_no_pass(run: Run) -> None:
    path = written("s.json", requests=spyre_scenario()["requests"][:1])
    assert run("replay", path).code == 0
    result = run("replay", path, "--rule", "SPY-R24", "--quiet")
    assert (result.code, result.out) == (3, "never at stake: SPY-R24; no verdict\n")


def test_a_replay_of_refused_requests_is_no_pass(run: Run, toy: Callable[[str], str]) -> None:
    result = run("replay", written("s.json"), "--target", toy("Rejects"), "--quiet")
    assert result.code == 3
    assert result.out.splitlines() == [
        "r0 refused at the door: no guests",
        "r1 refused at the door: no guests",
        "no rule was at stake; no verdict",
    ]


def test_a_replay_on_a_broken_target_is_exit_3(run: Run, toy: Callable[[str], str]) -> None:
    result = run("replay", written("s.json"), "--target", toy("Missing"))
    assert result.code == 3
    assert result.err == (
        "schedproof: broken target: at 'step' field waiting is promised in observes, but missing\n"
    )


# rules


def test_rules_lists_every_rule_with_its_state(run: Run) -> None:
    result = run("rules")
    assert result.code == 0
    lines = result.out.splitlines()
    assert re.match(r"ALL-R01 +safety +never crashes", lines[0])
    rules = load("spyre")
    for rule, line in zip(rules, lines[:-1], strict=True):
        state = rule.kind if rule.checked else "unchecked"
        assert line.split(maxsplit=2) == [rule.id, state, rule.title]
    checked = sum(rule.checked for rule in rules)
    assert lines[-1] == (
        f"{checked} rules are checked, {len(rules) - checked} have no predicate of their own, "
        "0 are planned; `schedproof rules RULE` shows one in full"
    )


def test_one_rule_is_shown_in_full(run: Run) -> None:
    result = run("rules", "SPY-R07")
    assert result.out.startswith("SPY-R07 (safety): batch × tkv within the limit\n  says:")
    assert "  source:    Spyre scheduling page" in result.out
    assert "  witness:   " in result.out
    assert "  differs:   2.0.0 to 2.1.0: " in result.out
    unchecked = run("rules", "SPY-R01").out
    assert "  unchecked: A definition" in unchecked
    assert "  stands in: SPY-R20, SPY-R22, ALL-R03\n" in unchecked


def test_the_matrix_has_a_line_a_rule_and_nothing_in_it_is_vacuous(run: Run) -> None:
    result = run("rules", "--matrix")
    assert (result.code, result.err) == (0, "")
    head, *lines, total = result.out.splitlines()
    assert head == ("rule      sound  documented  2.1.2  2.5.2  engines; witness; mutants")
    rules = load("spyre")
    assert [line.split()[0] for line in lines] == [rule.id for rule in rules]
    checked = sum(rule.checked for rule in rules)
    assert total == (
        f"{len(rules)} rules: {checked} checked, {checked} of them with a mutant; "
        f"{len(rules) - checked} without a predicate of their own, each with the reason"
    )


# serve


def served(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(
        [sys.executable, "-m", "schedproof", "serve", "model"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_serve_model_speaks_the_protocol() -> None:
    config = spyre_scenario()["config"]
    start = {"op": "start", "system": "spyre", "revision": "sound", "config": config}
    request = {"id": "r0", "prompt": [["r0", 5]], "max_tokens": 6, "output_len": 6}
    step = {"op": "step"}
    replies = served(
        start,
        {"op": "add", "request": request},
        {"op": "add", "request": request | {"id": "r1"}},
        {"op": "add", "request": request | {"id": "long", "max_tokens": 600}},
        {"op": "abort", "id": "r1"},
        step,
        {"op": "abort", "id": "r0", "inside": True},
        step,
        {"op": "stop"},
        step,
        start | {"config": config | {"colour": 1}},
        start | {"config": config | {"long_output_priority": True}},
        {"op": "dance"},
        start,
        step,
    )
    ok = [reply["ok"] for reply in replies]
    assert ok == [*[True] * 3, False, *[True] * 5, *[False] * 4, True, True]
    assert set(replies[0]) == {"ok", "name", "version", "observes"}
    assert replies[3]["error"] == "rejected"
    assert "beyond max_model_len (32)" in replies[3]["message"]
    assert replies[5]["step"]["finished"] == {"r1": "aborted"}
    assert replies[7]["step"]["finished"] == {"r0": "aborted"}
    assert replies[7]["step"]["emitted"] == {}
    assert replies[9]["error"] == "protocol"
    assert [reply["error"] for reply in replies[10:13]] == ["config", "config", "protocol"]
    assert "$.config.colour" in replies[10]["message"]
    assert "$.config.long_output_priority" in replies[11]["message"]
    assert replies[14]["step"]["kind"] == "idle"


# What a terminal, a pipe and an old locale get


def in_process(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "schedproof", *words],
        env=os.environ | environment,
        capture_output=True,
        timeout=PATIENCE,
    )


def test_output_to_a_pipe_has_no_escape_codes(run: Run) -> None:
    path = broken_scenario(run)
    done = in_process("replay", path, "--quiet")
    assert done.returncode == 1
    assert b"BROKEN SPY-R07" in done.stdout
    assert b"\x1b" not in done.stdout


def test_a_stdout_without_utf_8_gets_the_titles_all_the_same() -> None:
    done = in_process("rules", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"batch \xd7 tkv within the limit" in done.stdout


@pytest.fixture
def on_a_terminal() -> Callable[..., str]:
    """What a command writes to a terminal."""

    def write(*words: str, **environment: str) -> str:
        reader, writer = pty.openpty()
        done = subprocess.Popen(
            [sys.executable, "-m", "schedproof", *words],
            env=os.environ | {"TERM": "xterm-256color"} | environment,
            stdout=writer,
            stderr=writer,
        )
        os.close(writer)
        seen = b""
        try:
            while data := os.read(reader, 1 << 16):
                seen += data
        except OSError:  # Linux: the other end has closed
            pass
        finally:
            os.close(reader)
            done.wait(PATIENCE)
        return seen.decode()

    return write


def test_no_color_is_respected_on_a_terminal(run: Run, on_a_terminal: Callable[..., str]) -> None:
    path = broken_scenario(run)
    red = "\x1b[31mBROKEN"
    assert red in on_a_terminal("replay", path, "--quiet")
    plain = on_a_terminal("replay", path, "--quiet", NO_COLOR="1")
    assert "BROKEN" in plain
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", plain)


def small_gate(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with a quick profile that takes a moment."""
    quick = "from schedproof.gate import cli, profiles; "
    quick += "profiles.PROFILES['quick'] = profiles.Profile(4, 10, 10, 2_000); cli.main()"
    return subprocess.run(
        [sys.executable, "-c", quick, *words],
        env=os.environ | environment,
        capture_output=True,
        timeout=PATIENCE,
    )


def test_a_gate_leaves_nothing_in_the_folder_but_what_it_says(folder: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "HYPOTHESIS_STORAGE_DIRECTORY"}
    quick = "from schedproof.gate import cli, profiles; "
    quick += "profiles.PROFILES['quick'] = profiles.Profile(4, 0, 0, 0); cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", quick, "gate", "--profile", "quick"],
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(folder.iterdir()) == []
