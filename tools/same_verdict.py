"""Does the same seed give the same verdict, byte for byte except for times?

Runs gates with one process and with two, and with two hash seeds, and repeats one of them. It does
so with the wheel and the locked versions for each interpreter, and for the first one also with the
checkout. It takes ten minutes:

    make tool NAME=same_verdict OPTIONS="python3.11 python3.12 python3.13"
"""

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_SOURCE = (".*", "build", "dist", "site", "*.egg-info", "tests", "__pycache__")
TIMES = re.compile(rb'"(seconds|found_after|shrunk_in)": [0-9.e-]+')
GATES = (
    ("model", "--system", "spyre", "--revision", "documented", "--profile", "quick"),
    ("model", "--system", "vllm", "--profile", "quick"),
    ("model", "--system", "nano_vllm", "--profile", "quick"),
    ("model", "--system", "llmservingsim", "--profile", "quick"),
    ("model", "--system", "generic", "--profile", "quick"),
)
WAYS = [*itertools.product(("1", "2"), ("0", "1234")), ("1", "0")]


def environment(python: str, place: Path, package: Sequence[str]) -> Path:
    """Create a fresh environment that contains the package. Return the path of its `schedproof`."""
    subprocess.run([python, "-m", "venv", place], check=True)
    pip: list[str | Path] = [place / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", ROOT / "requirements.lock"], check=True)
    subprocess.run([*pip, "--no-deps", *package], check=True)
    return place / "bin" / "schedproof"


def digest(schedproof: Path, words: Sequence[str], jobs: str, hash_seed: str) -> str:
    """Run one gate. Return the digest of its verdict file without the times."""
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        options = ("--seed", "5", "--jobs", jobs, "--json", "v.json")
        command: list[str | Path] = [schedproof, "gate", *words, *options]
        subprocess.run(command, cwd=place, env=env, check=False, capture_output=True)
        whole = Path(place, "v.json").read_bytes()
    return hashlib.sha256(TIMES.sub(rb'"\1": 0', whole)).hexdigest()[:12]


def main(pythons: Sequence[str]) -> int:
    """Compare the verdicts of each gate, and print a line for it. Return the number of gates
    that differ."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = shutil.copytree(ROOT, place / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
        pip = (pythons[0], "-m", "pip", "wheel", "--quiet", "--no-deps")
        subprocess.run([*pip, "-w", place, source], check=True)
        [wheel] = place.glob("*.whl")
        environments = {
            f"wheel, {python}": environment(python, place / f"env{number}", [str(wheel)])
            for number, python in enumerate(pythons)
        }
        environments["checkout"] = environment(
            pythons[0], place / "checkout", ["--editable", str(ROOT)]
        )
        for words in GATES:
            found = {
                f"{name}, run {run}, --jobs {jobs}, hash seed {hash_seed}": digest(
                    schedproof, words, jobs, hash_seed
                )
                for name, schedproof in environments.items()
                for run, (jobs, hash_seed) in enumerate(WAYS)
            }
            alike = len({*found.values()}) == 1
            differ += not alike
            print(f"{'same' if alike else 'DIFFERENT'}  {len(found)} runs: gate {' '.join(words)}")
            for way, what in found.items() if not alike else ():
                print(f"    {what}  {way}")
    return differ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
