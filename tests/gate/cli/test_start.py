"""Before and after a command itself: while modules are loaded, and where its output goes."""

import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("interrupt", ["raise KeyboardInterrupt", BY_SIGNAL])
def test_ctrl_c_while_modules_are_loaded_is_one_line(interrupt, tmp_path):
    (tmp_path / "begun.py").write_text(INTERRUPTED.replace("INTERRUPT", interrupt))
    words = [sys.executable, "-m", "begun"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "schedproof: interrupted\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [("rules",), ("--version",), ("rules", "SPY-R07")])
def test_a_full_disk_behind_stdout_is_one_line(words):
    command = [sys.executable, "-m", "schedproof", *words]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == b"schedproof: stdout: No space left on device\n"


@pytest.mark.slow
def test_a_reader_that_goes_away_gets_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "schedproof", "rules"]
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
    ):
        code = FAILS.format(error=error)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 3
        assert done.stderr == f"schedproof: internal error, no verdict: {named}\n"
