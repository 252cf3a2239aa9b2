"""Install a release in a separate process: `installer RELEASE`.

Slow stand-ins replace venv, pip and the package index. Each of their commands runs as a separate
process (`installer -- COMMAND`).
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from schedproof.gate.processes.watchdog import run_watched
from schedproof.gate.targets import releases
from schedproof.gate.targets.releases import prepare
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.tests.gate.targets.wheel_files import make_wheel

FILES = {f"{{module}}/{name}.py": f"# {name}\n" * 50 for name in ("__init__", "a", "b/c", "b/d")}
FAILURES = ("no such host", "could not install packages")
SLOW = 0.02  # seconds between two actions of a command


def members(package: str, version: str) -> dict[str, str]:
    """Return the files of the stand-in wheel for this version."""
    module = package.replace("-", "_")
    files = {name.format(module=module): f"{text}# {version}\n" for name, text in FILES.items()}
    return {**files, f"{module}/_C.abi3.so": "machine code"}


def install(text: str) -> int:
    """Install a release, and return the exit code that a schedproof command would."""
    release = parse_release(text)
    assert release is not None
    try:
        prepared = prepare(release, report=lambda line: print(line, flush=True))
    except ReleaseError as error:
        print(f"schedproof: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 3
    print(prepared.env["PYTHONPATH"])
    return 0


def slow_command(command: Sequence[str], env: dict[str, str], lock: int) -> tuple[int, str]:
    """Run the command through this file. This function replaces `releases.run`."""
    words = [sys.executable, "-m", __spec__.name, "--", *command]
    here = {**env, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_watched(words, env=here, pass_fds=(lock,), stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode(errors="replace")


def answer(command: Sequence[str]) -> int:
    """Do what venv or pip would do, but slowly. Fail halfway in one of twelve cases."""
    fails = random.random() < 1 / 12
    for kind, act in (("venv", _venv), ("download", _download), ("install", _install)):
        if kind in command:
            act(command, lambda: _step(fails))
    print("None")  # the version of CUDA; there is none
    return 0


def _step(fails: bool) -> None:
    time.sleep(random.uniform(0, 2 * SLOW))
    if fails and random.random() < 0.3:
        print(random.choice((*(f"ERROR: {text}" for text in FAILURES), "")))
        sys.exit(1)


def _venv(command: Sequence[str], step: Callable[[], None]) -> None:
    python = Path(command[-1]) / "bin" / "python"
    step()
    python.parent.mkdir(parents=True)
    step()
    python.symlink_to(sys.executable)


def _install(command: Sequence[str], step: Callable[[], None]) -> None:
    folder = Path(command[0]).parent.parent / "lib"
    for number in range(5):
        step()
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.py").write_text("x = 1\n")


def _download(command: Sequence[str], step: Callable[[], None]) -> None:
    package, _, version = command[-1].partition("==")
    name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    (chosen,) = (word for word in command if word.startswith("--dest="))
    place = Path(chosen.removeprefix("--dest=")) / name
    step()
    whole = make_wheel(place, members(package, version)).read_bytes()
    with place.open("wb", buffering=0) as file:
        for start in range(0, len(whole), 400):
            file.write(whole[start : start + 400])
            step()


if __name__ == "__main__":
    if sys.argv[1] == "--":
        sys.exit(answer(sys.argv[2:]))
    os.umask(int(os.environ.get("INSTALLER_UMASK", "022"), 8))
    releases.run = slow_command
    releases.published_digests.cache_clear()
    releases.published_digests = dict  # type: ignore[assignment]  # the stand-in has other wheels
    sys.exit(install(sys.argv[1]))
