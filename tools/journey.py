"""Do the documented commands that install a release print what their page says?

Runs the `journey` blocks of a page word for word, in an empty folder:

    make tool NAME=journey OPTIONS=docs/tutorials/plugin.md

A second argument leaves out the commands that contain this text; the tool lists them.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from schedproof.tests.test_docs import BLOCK, as_pattern, commands


def main(page: Path, without: str = "") -> int:
    """Run the commands on a page. Return the number of commands that do not print what the page
    says."""
    failed = 0
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        for kind, role, name, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            if role == "title":
                (Path(folder) / name).write_text(block, encoding="utf-8")
            for command in commands(block) if kind == "journey" else ():
                if without and without in command.words:
                    print(f"left out  {command.words}", flush=True)
                    continue
                ran = subprocess.run(
                    command.words,
                    shell=True,
                    cwd=folder,
                    env={**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                right = re.fullmatch(as_pattern(command.shown), ran.stdout) is not None
                failed += not right
                print(f"{'ok' if right else 'WRONG'}  {command.words}", flush=True)
                if not right:
                    print(ran.stdout[-3000:], ran.stderr[-2000:])
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
