"""Do the declared bounds of the dependencies hold?

Installs the lowest or the newest versions that pyproject.toml allows into a fresh environment, and
runs the fast tests there:

    make tool NAME=bounds OPTIONS="lowest --python python3.13"
    make tool NAME=bounds OPTIONS="newest tests/gate/cli"
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Packages that the tests need in addition to the dependencies. Tests that need another extra are
# skipped.
RUNNERS = ("pytest", "pytest-randomly", "pytest-xdist", "pyyaml", "syrupy")
# Old versions may cause warnings, which must not fail the tests.
QUICK = ("-n", "2", "-m", "not slow and not nightly", "-p", "no:cacheprovider", "-W", "default")


def requirements(which: str) -> list[str]:
    """Return the requirements to install: the "lowest" or the "newest" versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared: list[str] = project["dependencies"] + extras["fast"]
    if which == "lowest":
        declared = [text.replace(">=", "==", 1) for text in declared]
    return declared + [text for text in extras["test"] if re.split("[<>=]", text)[0] in RUNNERS]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("lowest", "newest"))
    parser.add_argument("tests", nargs="*", default=["tests"], help="files of tests")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([options.python, "-m", "venv", place], check=True)
        programs = Path(place, "bin")
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *requirements(options.which)], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        tests = [str(programs / "pytest"), *QUICK, *options.tests]
        return subprocess.run(tests, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
