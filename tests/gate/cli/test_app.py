"""The command line: one line for every wrong input, the help, and what a terminal gets."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from schedproof import __version__
from schedproof.gate.cli import app
from schedproof.gate.cli.groups import EXAMPLES, GROUPS, RARE_OPTIONS
from schedproof.spec.catalogue import load

from ...command_line import Result
from ..toys import PATIENCE, TOYS, broken_scenario, in_process, spyre_scenario, written

pytestmark = pytest.mark.usefixtures("folder")


WRONG = [
    (["--nope"], "No such option: --nope"),
    (["gate", "--zzz"], "No such option: --zzz; schedproof gate --help"),
    (["nope"], "No such command 'nope'; schedproof --help"),
    (["gaet"], "No such command 'gaet'. Did you mean 'gate'? schedproof --help"),
    (["gate", "vllm=0.33.0"], "TARGET 'vllm=0.33.0'; did you mean vllm==0.33.0?"),
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
    (["gate", "--step-limit", "0"], "--step-limit: 0; valid: at least 0.1"),
    (["gate", "--step-limit", "nan"], "--step-limit: nan; valid: at least 0.1"),
    (["gate", "--time-limit", "1e300"], "--time-limit: 1e+300; valid: at most 1,000,000,000"),
    (["gate", "--config", f"num_blocks={'[' * 100_000}"], "--config: $.config.num_blocks: "),
    (["gate", "--config", "num_blocks=\udcff"], "--config: 'num_blocks=\\udcff' is not UTF-8"),
    (["gate", "--json", "loop"], "--json: loop cannot be written to (Too many levels of symbolic"),
    (["gate", "a", "b"], "unexpected extra argument"),
    (["gate", ""], "TARGET '' is not understood; valid: model, MODULE:FACTORY"),
    (["gate", "own/adapter.py:Target"], "imported from this folder: own.adapter:Target"),
    (["gate", "foo"], "TARGET 'foo' is not understood; valid: model, MODULE:FACTORY"),
    (["gate", "foo:"], "TARGET 'foo:': nothing after the colon; valid:"),
    (["gate", "a-b:c"], "TARGET 'a-b:c' is not understood"),
    (["gate", "cmd:"], "no command after cmd:; valid:"),
    (["gate", "vllm==0.33.0:"], "TARGET 'vllm==0.33.0:': nothing after the colon; valid:"),
    (["gate", "vllm==0.33.0", "--scheduler-cls", ""], "'' is not a scheduler class; valid:"),
    (["gate", "model:"], "TARGET 'model:': nothing after the colon; valid:"),
    (["gate", "cmd:  "], "no command after cmd:; valid:"),
    (["gate", "cmd:'x"], "No closing quotation; valid:"),
    (["gate", "cmd:/no/such/scheduler --fast"], "'/no/such/scheduler': No such file or directory"),
    (["gate", "sendnn-inference==9.9"], "version '9.9' is not supported; supported are 2.0.0"),
    (["gate", "vllm==0.9.9"], "vllm: version '0.9.9' is not supported; supported are 0.19.1, "),
    (["gate", "sendnn-inference==2.1.2", "--offline"], "not installed: Python environment"),
    (["gate", "--json", "no/folder/v.json"], "--json: no/folder/v.json: the folder no/folder does"),
    (["gate", "--json", "."], "--json: . is a folder; valid: a file"),
    (["gate", "--json", "-"], "--json: '-' does not stand for standard output here; valid: a file"),
    (["show", "late-arrivals-before-961", "-o", "-"], "-o: '-' does not stand for "),
    (["gate", "--junit", "."], "--junit: . is a folder; valid: a file"),
    (["gate", "--sarif", "no/s"], "--sarif: no/s: the folder no does not exist"),
    (["gate", "--ndjson", "file/e"], "--ndjson: file/e: the folder file does not exist"),
    (["gate", "--junit", "x", "--sarif", "x"], "--sarif: x is also the file of --junit; valid: "),
    (
        ["gate", "--deviations", "file", "--json", "file"],
        "--json: file is also the file of --deviations",
    ),
    (["gate", "--out", "a\udcff"], "--out: 'a\\udcff' is not UTF-8"),
    (["gate", "cmd:a\udcff"], "TARGET: 'cmd:a\\udcff' is not UTF-8"),
    (["gate", "--out", "file"], "--out: file: file is not a folder"),
    (["gate", "--out", "file/below"], "--out: file/below: "),
    (["gate", "--out=--help"], "--out: '--help'; valid: a folder whose name begins with no -"),
    (["gate", "q" * 9_000], "q … (9,"),
    (["gate", "q" * 9_000], "valid: model, MODULE:FACTORY"),
    (["gate", "--json", "q" * 9_000], "--json: qq"),
    (["gate", "--json", "link"], "--json: link: the folder "),
    (["show", "late-arrivals-before-961", "-o", "link"], "-o: link: the folder "),
    (["gate", "--out", "link"], "--out: link is a broken link; valid: a folder"),
    (["gate", "--revision", ""], "--revision: '' is not a revision of spyre; valid: sound, "),
    (["doctor", "model", "--revision", ""], "--revision: '' is not a revision of spyre"),
    (["step", "--revision", ""], "--revision: '' is not a revision of spyre"),
    (["search", "SPY-R07", "--revision", ""], "--revision: ''"),
    (["gate", "--out", "q" * 9_000], "qq cannot be written to (File name too long)"),
    (["replay"], "Missing argument"),
    (["doctor"], "TARGET: none named; valid: MODULE:FACTORY for your own scheduler"),
    (["replay", "nofile.json"], "nofile.json: cannot be read (No such file or directory)"),
    (["replay", "file"], "file: not JSON"),
    (["serve", "foo"], "TARGET 'foo' is not understood"),
    (["serve", "no.such_module:make"], "cannot import 'no.such_module'"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(words)[:60] for words, _ in WRONG])
def test_wrong_input_is_one_line_and_exit_2(words, says, run, folder):
    (folder / "file").write_text("not json\n")
    (folder / "loop").symlink_to("loop")
    (folder / "link").symlink_to("nowhere/at/all")
    result = run(*words)
    assert result.code == 2
    assert result.err.startswith("schedproof: ")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert len(result.err) < 1_000
    assert {entry.name for entry in folder.iterdir()} == {"file", "link", "loop"}


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
            "$.config.long_output_priority: true needs decode pausing, which revision sound",
        ),
        (
            {"revision": "2.5.2", "config": {"num_blocks": 511}},
            "$.config.num_blocks: 511 blocks cannot hold a request of max_model_len tokens",
        ),
        (
            {"revision": "2.6.3"},
            "$.revision: '2.6.3' is not a revision of spyre; valid: sound, documented, 2.1.2,",
        ),
        ({"expect": {"violates": ["SPY-R70"]}}, "$.expect.violates: no rule 'SPY-R70'; did you"),
        ({"expect": {"steps": [{"step": 0, "tkvs": 1}]}}, "$.expect.steps[0].tkvs: unknown field"),
    ],
)
def test_a_wrong_scenario_is_one_line_with_file_and_path(changes, says, run):
    result = run("replay", written("s.json", **changes))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("schedproof: s.json: ")
    assert says in result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_a_base_that_cannot_be_imported_is_called_the_base(run):
    result = run("gate", "toys:Toy", "--base", "nowhere:make", "--system", "spyre")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("schedproof: --base: 'nowhere:make': cannot import 'nowhere' (")
    result = run("gate", "nowhere:make", "--base", "toys:Toy", "--system", "spyre")
    assert result.err.startswith("schedproof: TARGET 'nowhere:make': cannot import 'nowhere' (")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("no_such_module:make", "cannot import 'no_such_module'"),
        ("toys:nothing", "toys has no callable 'nothing'"),
        ("toys:not_callable", "toys has no callable 'not_callable'"),
        ("toys:raises", "raises() raised "),
        ("toys:no_target", "no_target() returns a object without start, add, abort, step, stop"),
        ("broken:make", "cannot import 'broken' (SyntaxError: "),
        ("exits:make", "cannot import 'exits' ("),
        ("cancelled:make", "cannot import 'cancelled' ("),
    ],
)
def test_a_wrong_factory_is_one_line_though_it_runs_in_a_process_of_its_own(
    spec, says, run, toy, folder
):
    (folder / "broken.py").write_text("def make(:\n")
    (folder / "exits.py").write_text("raise SystemExit(5)\n")
    (folder / "cancelled.py").write_text("import asyncio\nraise asyncio.CancelledError\n")
    result = run("gate", spec)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: TARGET '{spec}': ")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert not (folder / "schedproof-out").exists()


@pytest.mark.slow
def test_a_factory_that_raises_is_named_with_its_line(run, toy, folder):
    line = TOYS.splitlines().index('def raises(): return {}["nothing"]') + 1
    assert f"toys.py, line {line}: KeyError: 'nothing'" in run("gate", "toys:raises").err


def test_no_arguments_show_the_help(run):
    result = run()
    assert result.code == 2
    assert result.err.startswith("Usage: schedproof")
    assert all(name in result.err for name in ("gate", "replay", "rules", "serve"))


def test_a_command_that_leaves_with_1_is_not_taken_for_output_that_nobody_reads():
    own = typer.Typer()
    own.command()(lambda: sys.exit(1))
    with pytest.raises(SystemExit, match="1"):
        app.run(own, [])


def test_the_version_is_that_of_the_package(run):
    assert run("--version") == Result(0, f"schedproof {__version__}\n", "")


def test_rules_lists_every_rule_with_its_state(run):
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
        "0 are planned; `schedproof rules RULE` shows a rule in full"
    )


def test_one_rule_is_shown_in_full(run):
    result = run("rules", "SPY-R07")
    assert result.out.startswith("SPY-R07 (safety): batch × tkv within the limit\n  says:")
    assert "  source:    Spyre scheduling page" in result.out
    assert "  witness:   " in result.out
    assert "  differs:   2.0.0 to 2.1.0: " in result.out
    two = run("rules", "SPY-R07", "V1-R05")
    assert two.code == 0
    assert two.out.startswith(result.out + "\nV1-R05 (decision): ")
    unchecked = run("rules", "SPY-R01").out
    assert "  unchecked: Consequence. This describes the scheme" in unchecked
    assert "  covered:   by SPY-R20, SPY-R22, ALL-R03\n" in unchecked


def served(*messages):
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


def test_serve_model_speaks_the_protocol():
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
    assert set(replies[0]) == {"ok", "name", "version", "observes", "defaults"}
    assert replies[3]["error"] == "rejected"
    assert "exceeds max_model_len (32)" in replies[3]["message"]
    assert replies[5]["step"]["finished"] == {"r1": "aborted"}
    assert replies[7]["step"]["finished"] == {"r0": "aborted"}
    assert replies[7]["step"]["emitted"] == {}
    assert replies[9]["error"] == "protocol"
    assert [reply["error"] for reply in replies[10:13]] == ["config", "config", "protocol"]
    assert "$.config.colour" in replies[10]["message"]
    assert "$.config.long_output_priority" in replies[11]["message"]
    assert replies[14]["step"]["kind"] == "idle"


def test_output_to_a_pipe_has_no_escape_codes():
    done = in_process("replay", broken_scenario(), "--quiet")
    assert done.returncode == 1
    assert b"BROKEN SPY-R47" in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.slow
def test_a_stdout_without_utf_8_gets_the_titles_all_the_same():
    done = in_process("rules", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"batch \xd7 tkv within the limit" in done.stdout


@pytest.fixture
def on_a_terminal():
    """What a command writes to a terminal."""

    def write(*words, **environment):
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


@pytest.mark.slow
def test_no_color_is_respected_on_a_terminal(on_a_terminal):
    path = broken_scenario()
    red = "\x1b[31mBROKEN"
    assert red in on_a_terminal("replay", path, "--quiet")
    plain = on_a_terminal("replay", path, "--quiet", NO_COLOR="1")
    assert "BROKEN" in plain
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", plain)


@pytest.mark.slow
def test_a_gate_leaves_nothing_in_the_folder_but_what_it_says(folder):
    environment = {k: v for k, v in os.environ.items() if k != "HYPOTHESIS_STORAGE_DIRECTORY"}
    quick = "from schedproof.gate.cli import app; from schedproof.gate.judging import profiles; "
    quick += "profiles.PROFILES['quick'] = profiles.Profile(4, 0, 0, 0); app.main()"
    done = subprocess.run(
        [sys.executable, "-c", quick, "gate", "model", "--profile", "quick"],
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(folder.iterdir()) == []


def test_the_help_has_every_command_once_in_a_group_and_an_example_that_parses():
    grouped = [name for group in GROUPS.values() for name in group]
    modules = [path.stem for path in Path(app.__file__).parent.glob("*.py")]
    loaded = {module: import_module(f"schedproof.gate.cli.{module}") for module in modules}
    there = [n for n, module in loaded.items() if hasattr(module, "command") or n == "corpus"]
    assert sorted(grouped) == sorted(name.replace("_", "-") for name in there)
    assert sorted([*EXAMPLES, "corpus"]) == sorted(grouped)
    commands: Any = typer.main.get_command(app.app)
    assert [*commands.commands] == grouped
    for name, line in EXAMPLES.items():
        words = shlex.split(line)
        assert words[:2] == ["schedproof", name]
        commands.commands[name].make_context(name, words[2:])


def test_each_summary_fits_its_line(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--help", "--all").out.splitlines()
    for group in GROUPS.values():
        for name, says in group.items():
            assert [line for line in lines if line.split() == [name, *says.split()]], name
    assert "..." not in "\n".join(lines[1:])


def test_rare_commands_and_options_are_shown_by_help_all_alone(run):
    assert not re.search("^  campaign ", run("--help").out, re.MULTILINE)
    assert re.search("^  campaign ", run("--help", "--all").out, re.MULTILINE)
    for command, options in RARE_OPTIONS.items():
        common, everything = run(command, "--help").out, run(command, "--help", "--all").out
        assert "--help --all also shows rarely used options." in common
        for option in options:
            assert f"  {option} " not in common
            assert f"  {option} " in everything


def test_the_help_of_a_command_reads_as_it_is_meant(run):
    text = run("gate", "--help").out
    assert "--rule RULE" in text
    assert "--config KEY=VALUE" in text
    assert "list[" not in text
    assert "Example: schedproof gate " in text


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["gate", "--corpus", ""], "--corpus"),
        (["gate", "model", "--out="], "--out"),
        (["gate", "model", "--deviations", ""], "--deviations"),
        (["replay", "late-arrivals-before-961", "--trace", ""], "--trace"),
        (["corpus", "run", "--corpus", ""], "--corpus"),
        (["corpus", "add", "a.json", ""], "FILE..."),
    ],
)
def test_an_empty_path_is_refused_and_not_taken_for_the_current_folder(run, words, name):
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"schedproof: {name}: ''; valid: a path\n"
