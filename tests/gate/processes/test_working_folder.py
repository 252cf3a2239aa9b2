"""Processes of ours import nothing from the working folder."""

import subprocess
import sys

import pytest

PROGRAM = """
from schedproof.gate.cli.app import main
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "words",
    [
        "gate model --system generic --rule ALL-R01 --profile quick --time-limit 1 --jobs 2",
        "explore --system nano_vllm --time-limit 1 --jobs 2",
        "campaign --system generic --items 1 --workers 2",
        "search SPY-R07 --prove --time-limit 1",
    ],
)
def test_a_module_in_the_working_folder_is_not_imported(words, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("types", "socket", "multiprocessing"):
        (folder / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit(7)\n")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), *words.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (folder / "ran").exists(), done.stderr
    assert done.returncode in (0, 3)
    assert "died" not in done.stdout + done.stderr


SHOWN = """
import os
from schedproof.gate.processes.work_process import SAFE_PATH, run_in_process
def shown():
    yield os.environ.get(SAFE_PATH)
if __name__ == "__main__":
    print(*run_in_process(60.0, shown), os.environ.get(SAFE_PATH))
"""


@pytest.mark.parametrize(
    ("value", "says"), [(None, "None None"), ("", "None "), ("1", "1 1")], ids=str
)
def test_targets_get_the_environment_of_the_user(value, says, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if value is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", value)
    program = tmp_path / "program.py"
    program.write_text(SHOWN)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip("\n") == says
