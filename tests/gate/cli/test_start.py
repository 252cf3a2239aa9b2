"""Before and after a command itself: while modules are loaded, and where its output goes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.matrix.cells import Cell, CellVerdict
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.scales import ANY

from ...command_line import runner

PATIENCE = 60.0  # seconds
INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "schedproof.gate.cli.app":
            INTERRUPT

sys.meta_path.insert(0, Interrupts())
from schedproof.gate.cli.start import main
main()
"""


# In text that is run as code, as a dataclass is made, Python notes it and kills itself at the end.
BY_SIGNAL = "import os; exec('os.kill(os.getpid(), 15)\\nfor _ in range(9): pass')"


def test_a_working_directory_that_was_removed_is_named(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    words = [sys.executable, "-P", "-m", "schedproof", "show", "late-arrivals-before-913"]
    line = f"import os; os.rmdir({str(gone)!r}); os.execv({words[0]!r}, {words!r})"
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, cwd=gone, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "schedproof: the working directory: No such file or directory\n"


@pytest.mark.parametrize("interrupt", ["raise KeyboardInterrupt", BY_SIGNAL])
def test_ctrl_c_while_modules_are_loaded_is_one_line(interrupt, tmp_path):
    (tmp_path / "begun.py").write_text(INTERRUPTED.replace("INTERRUPT", interrupt))
    words = [sys.executable, "-m", "begun"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "schedproof: interrupted\n"


THREADS = """
import sys, threading
from schedproof.gate.cli import start

def run():
    threading.Thread(target=threading.Event().wait).start()
    print("done")
    sys.exit(1)

start._run = run
start.main()
"""


def test_a_thread_of_the_users_code_does_not_keep_a_finished_command_alive(tmp_path):
    words = [sys.executable, "-c", THREADS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "done\n", "")


EARLY = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "schedproof.systems":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from schedproof.gate.cli.start import main
main()
"""


def test_ctrl_c_before_the_command_line_is_loaded_prints_no_traceback(tmp_path):
    (tmp_path / "schedproof").write_text(EARLY)
    words = [sys.executable, str(tmp_path / "schedproof"), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_program_that_imports_schedproof_keeps_its_handler_of_ctrl_c():
    code = "import signal, schedproof; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "default_int_handler\n"


def test_the_help_needs_no_docstrings():
    words = [sys.executable, "-OO", "-m", "schedproof"]
    for more, says in (
        (["gate"], "Judge a scheduler: a verdict per rule."),
        (["corpus", "list"], "List"),
        (["corpus"], "Regression scenarios"),
    ):
        done = subprocess.run(
            [*words, *more, "--help"], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert says in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [("rules",), ("--version",), ("rules", "SPY-R07")])
def test_a_full_disk_behind_stdout_is_one_line(words):
    command = [sys.executable, "-m", "schedproof", *words]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == b"schedproof: stdout: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("rules",), ("--help",), ("gate", "--help"), ("--version",)])
def test_a_reader_that_goes_away_gets_no_traceback(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "schedproof", *words]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, b"")


FAILS = """
from schedproof.gate.cli import app, start

def fails():
    raise {error}

app.main = fails
start.main()
"""


@pytest.mark.slow
def test_an_error_of_our_own_is_one_line_and_no_verdict():
    for error, named in (
        ("ZeroDivisionError('a\\nb')", "ZeroDivisionError: a b (<string>:5, in fails)"),
        ("MemoryError", "MemoryError: no message (<string>:5, in fails)"),
        ("GeneratorExit", "GeneratorExit: no message (<string>:5, in fails)"),
    ):
        code = FAILS.format(error=error)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 3
        assert done.stderr == f"schedproof: internal error, no verdict: {named}\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("OSError(24, 'Too many open files')", "Too many open files"),
        ("OSError(28, 'No space left on device')", "stdout: No space left on device"),
        ("OSError(13, 'Permission denied', 'x')", "x: Permission denied"),
    ],
)
def test_an_error_of_the_system_names_its_place_if_there_is_one(error, says):
    code = FAILS.format(error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"schedproof: {says}\n")


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 4, 8, corpus_steps=2_000))
    return runner(monkeypatch, capfd)


@pytest.mark.slow
def test_each_scene_runs_in_a_project_of_another_system(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.schedproof]\ntarget = "mine:Target"\nsystem = "nano_vllm"\nexclude = ["NAN-R07"]\n'
    )
    result = run("demo")
    assert (result.code, result.err) == (0, "")
    codes = [line.split(":")[0] for line in result.out.splitlines() if line.startswith("exit code")]
    assert codes == [f"exit code {code}" for code in (1, 1, 0, 0, 1)]
    assert (tmp_path / "schedproof-demo" / "late-arrivals.html").stat().st_size > 10_000
    assert [*(tmp_path / "schedproof-demo").glob("SPY-R07-*.json")]


def test_a_place_that_cannot_be_written_to_is_said_first(run, tmp_path):
    (tmp_path / "there").write_text("")
    result = run("demo", "--out", "there")
    assert (result.code, result.out) == (2, "")
    assert "--out: there: there is not a folder" in result.err


@pytest.mark.slow
def test_one_press_of_ctrl_c_ends_it(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "schedproof", "demo"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("target "):
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out.count("$ schedproof") <= 1
    assert "begin with your own scheduler" not in out


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["triton"], "'triton' is not a release; valid: "),
        (["vllm==0.1.0"], "vllm: version '0.1.0' is not supported"),
        (["vllm==0.33.0", "--profile", "long"], "--profile: 'long'; valid: quick, ci, nightly"),
        (["vllm==0.33.0", "--jobs", "0"], "--jobs: 0; valid: at least 1"),
        (["vllm==0.33.0", "--cluster", "here"], "--cluster: 'here'; valid: tcp://HOST:PORT"),
        (
            ["vllm==0.33.0", "--cluster", "tcp://h:1", "--jobs", "2"],
            "--jobs: a cluster has its own workers; valid: --jobs or --cluster",
        ),
    ],
)
def test_bad_input_is_one_line(run, arguments, says):
    result = run("matrix", *arguments)
    assert result.code == 2
    [line] = result.err.splitlines()
    assert says in line


def test_what_was_judged_is_written_and_what_was_not_is_code_3(run, monkeypatch):
    cell = Cell("vllm==0.33.0", ANY, "quick", 3)

    def judged(cells, folder, report, *_):
        report(CellVerdict(cell, None, "no such release"), 2.0)  # type: ignore[operator]
        return [CellVerdict(cell, None, "no such release")]

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", judged)
    Path("there").mkdir()
    table = '[tool.schedproof]\nsystem = "vllm"\nexclude = ["V1-R09"]\n'
    Path("pyproject.toml").write_text(table, encoding="utf-8")
    result = run("matrix", "vllm==0.33.0", "--out", "there", "--seed", "3")
    note = "exclude of [tool.schedproof] in pyproject.toml applies"
    assert note in result.out
    assert note in Path("there/matrix.md").read_text().replace("\\", "")
    assert result.code == 3
    assert "/17  vllm==0.33.0, any: no verdict: no such release (2 s)" in result.out
    data = json.loads(Path("there/matrix.json").read_text())
    assert data["format"] == "schedproof/matrix@1"
    assert data["entries"][0]["problem"] == "no such release"
    assert "`schedproof matrix vllm==0.33.0 --seed=3`" in Path("there/matrix.md").read_text()


def test_settings_of_the_project_belong_to_a_gate(run, monkeypatch):
    names: list[str] = []

    def judged(cells, *_):
        names.append(cells[0].settings)
        return []

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", judged)
    run("matrix", "vllm==0.33.0")
    table = '[tool.schedproof]\nsystem = "vllm"\n'
    for more in ('exclude = ["V1-R09"]\n', 'exclude = ["V1-R10"]\n', 'extra_rules = "ours.py"\n'):
        Path("pyproject.toml").write_text(table + more, encoding="utf-8")
        Path("ours.py").write_text("RULES = []\n", encoding="utf-8")
        run("matrix", "vllm==0.33.0")
    Path("ours.py").write_text("RULES = [1]\n", encoding="utf-8")
    run("matrix", "vllm==0.33.0")
    run("matrix", "sendnn-inference==2.6.3")  # the table is about another system
    assert (names[0], names[-1]) == ("", "")
    assert len({*names}) == len(names) - 1


@pytest.mark.parametrize("scheduler", [[], ["--scheduler-cls", "mine.Mine", "--path", "."]])
def test_ctrl_c_writes_the_finished_gates_and_names_the_others(run, monkeypatch, scheduler):
    def interrupted(cells, folder, report, *_):
        report(CellVerdict(cells[0], None, "no such release"), 2.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", interrupted)
    Path("mine.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    Path("schedproof-matrix").mkdir()
    result = run("matrix", "vllm==0.28.0", "vllm==0.33.0", "--profile", "quick", *scheduler)
    assert result.code == 3
    of = 2 if scheduler else 34
    assert f"interrupted after 1 of {of}; " in result.err
    said = " ".join(result.out.split())
    assert "schedproof-matrix/matrix.md: 0 rows with broken rules, incomplete" in said
    assert re.search(r"not judged: vllm==0\.33\.0: [a-z]+", said), said
    assert ("not judged: vllm==0.28.0" in said) == (not scheduler)
    data = json.loads(Path("schedproof-matrix/matrix.json").read_text())
    problems = [entry["problem"] for entry in data["entries"]]
    assert problems == ["no such release", *["interrupted before it was judged"] * (of - 1)]
    page = Path("schedproof-matrix/matrix.md").read_text()
    assert f"Incomplete: {of - 1} of {of} gates did not end (interrupted)." in page
    assert "Not judged, " in page


def test_ctrl_c_says_that_the_same_command_goes_on(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("schedproof.gate.cli.matrix.run_cells", interrupted)
    result = run("matrix", "vllm==0.33.0")
    assert result.code == 3
    assert "interrupted after 0 of 17; run the command again to resume" in result.err
    assert "17 gates of profile quick\n" in result.out
    Path("mine.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    result = run("matrix", "vllm==0.33.0", "--scheduler-cls", "mine.Mine", "--path", ".")
    assert "interrupted after 0 of 1; the next run judges the class from the start" in result.err
    assert not Path("schedproof-matrix/matrix.md").exists()  # it would show nothing
