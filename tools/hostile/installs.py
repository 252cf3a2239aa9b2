"""Does an installation survive kills, other installations, failures and a corrupted cache?

A release must be installed completely or not at all. Slow stand-ins replace Python's `venv`, pip
and the package index:

    make tool NAME=hostile.installs OPTIONS="--rounds 20"
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.targets.supported_releases import parse_release

from .installer import FAILURES, members
from .processes import MARK as MARKED
from .processes import Ended, faults, survivors
from .report import finish, parser, went_wrong

SECONDS = 60
TURNS = 4
RELEASES = ("vllm==0.19.1", "vllm==0.33.0", "sendnn-inference==2.1.2", "sendnn-inference==2.1.0")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEFT_ALONE = 0.3  # the fraction of installations that are not disturbed
UMASKS = ("000", "002", "022", "077")
# Reasons for which an installation may be refused: a stand-in failed, or the cache is damaged.
REASONS = (
    *FAILURES,
    "no output",
    "/lock: Is a directory",
    "/downloads",
    "cannot unpack vllm-0.19.1",
)
Spoiler = Callable[[Path, random.Random], object]


class AttackReport(NamedTuple):
    """The installations of one round: how the cache was damaged, how each installation ended,
    and what went wrong."""

    spoilers: list[str]
    endings: list[str]
    wrong: list[str]


def attack(seed: int) -> AttackReport:
    """Damage a cache several times, each time followed by installations, some of which are
    interrupted. Nothing interrupts the last installation."""
    chance, report = random.Random(seed), AttackReport([], [], [])
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "cache"
        for turn in range(TURNS):
            name = chance.choice([*SPOILERS])
            with suppress(OSError):  # earlier damage may make this impossible
                SPOILERS[name](cache, chance)
            report.spoilers.append(name)
            mark = f"install-{os.getpid()}-{seed}-{turn}"
            for ended in _at_once(cache, mark, chance):
                report.endings.append(_ending(ended.code))
                report.wrong.extend(_wrong(ended))
            report.wrong.extend(f"still there: {survivor}" for survivor in survivors(mark))
        report.wrong.extend(_left_alone(cache, seed, chance))
    return report._replace(
        wrong=[f"seed {seed}, {report.spoilers}: {line}" for line in report.wrong]
    )


def _at_once(cache: Path, mark: str, chance: random.Random) -> list[Ended]:
    """Start one to three installations at the same time, and send signals to some of them."""
    plans = []
    for _ in range(chance.randint(1, 3)):
        process = _begin(cache, chance.choice(RELEASES), mark, chance)
        number = None if chance.random() < LEFT_ALONE else chance.choice(SIGNALS)
        plans.append((chance.uniform(0.2, 2.5), number, process))
    began = time.monotonic()
    for instant, number, process in sorted(plans, key=lambda plan: plan[0]):
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(began + instant - time.monotonic(), 0))
        if number is not None:
            process.send_signal(number)
    return [_wait(process, began) for *_, process in plans]


def _begin(cache: Path, release: str, mark: str, chance: random.Random) -> "subprocess.Popen[str]":
    env = {**os.environ, MARKED: mark, "SCHEDPROOF_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-m", "schedproof.tools.hostile.installer", release],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**env, "INSTALLER_UMASK": chance.choice(UMASKS), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )


def _wait(process: "subprocess.Popen[str]", began: float) -> Ended:
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\nlonger than {SECONDS} s"
    return Ended(process.returncode, out, err, time.monotonic() - began)


def _ending(code: int) -> str:
    by_a_signal = code == 3 or -code in SIGNALS
    return {0: "installed", 2: "refused"}.get(code, "ended by a signal" if by_a_signal else "wrong")


def _wrong(ended: Ended) -> list[str]:
    """Return the faults of an installation: in its exit code, its output or the installed files."""
    found = faults(ended, (0, 2, 3, *(-number for number in SIGNALS)))
    if ended.code == 2 and not (ended.err.startswith("schedproof: ") and ended.err.count("\n") < 2):
        found.append(f"not one line: {ended.err[-300:]!r}")
    if ended.code == 2 and not any(reason in ended.err for reason in REASONS):
        found.append(f"refused, although nothing prevented it: {ended.err[-300:]!r}")
    if ended.code == 0:
        for tree in ended.out.splitlines()[-1].split(os.pathsep):
            found += unlike(Path(tree))
    return found


def unlike(tree: Path) -> list[str]:
    """If an installed tree differs from its wheel, return a line that names the different files."""
    package, _, version = tree.name.rpartition("-")
    wanted = {k: v for k, v in members(package, version).items() if k.endswith(".py")}
    contents = {
        str(file.relative_to(tree)): file.read_text(errors="replace")
        for file in tree.rglob("*")
        if file.is_file() and "dist-info" not in str(file)
    }
    names = sorted(k for k in {*wanted, *contents} if wanted.get(k) != contents.get(k))
    return [f"{tree.name}: {names} differ from the wheel"] if names else []


def _left_alone(cache: Path, seed: int, chance: random.Random) -> Sequence[str]:
    """Return the faults of an undisturbed installation. Try a few times, because the stand-ins
    for venv and pip sometimes fail."""
    release, mark = chance.choice(RELEASES), f"alone-{os.getpid()}-{seed}"
    # Remove what blocks the installation, as the error messages tell the user to do.
    for name in ("lock", "downloads"):
        path = cache / name
        if path.is_dir() == (name == "lock") and path.exists():
            path.rmdir() if path.is_dir() else path.unlink()
    for _ in range(10):
        ended = _wait(_begin(cache, release, mark, chance), time.monotonic())
        found = [*_wrong(ended), *(f"still there: {survivor}" for survivor in survivors(mark))]
        if found or ended.code == 0:
            break
    if ended.code:
        return [*found, f"left alone, exit code {ended.code}: {ended.err[-300:]}"]
    meant = parse_release(release)
    assert meant is not None
    trees = {f"{layer.package.name}-{layer.version}" for layer in meant.layers}
    names = {path.name for path in cache.iterdir()}
    if " MB in " in ended.out:  # otherwise there was nothing left to install
        found += [f"left behind: {name}" for name in names if name.endswith(".partial")]
    found += [f"{name} is not there" for name in trees - names]
    if cache.stat().st_mode & 0o022:
        found.append(f"others may write into the cache: {oct(cache.stat().st_mode)}")
    return found


# Ways in which a cache may be damaged.


def _trees(cache: Path) -> list[Path]:
    """Return the package trees and environments in the cache, whether complete or not."""
    return sorted(path for path in cache.glob("*-*") if path.is_dir())


def _of_a_tree(act: Callable[[Path, random.Random], object]) -> Spoiler:
    def spoil(cache: Path, chance: random.Random) -> None:
        if trees := _trees(cache):
            act(chance.choice(trees), chance)

    return spoil


def _of_a_file(act: Callable[[Path, random.Random], object]) -> Spoiler:
    def spoil(tree: Path, chance: random.Random) -> None:
        if files := sorted(path for path in tree.rglob("*.py") if path.is_file()):
            act(chance.choice(files), chance)

    return _of_a_tree(spoil)


def _a_file_in_its_place(tree: Path, _: random.Random) -> None:
    shutil.rmtree(tree)
    tree.write_text("no folder\n")


def _a_loop_in_its_place(tree: Path, _: random.Random) -> None:
    shutil.rmtree(tree)
    tree.symlink_to(tree)


def _emptied(tree: Path, _: random.Random) -> None:
    shutil.rmtree(tree)
    tree.mkdir()


def _half_gone(tree: Path, chance: random.Random) -> None:
    for file in sorted(tree.rglob("*")):
        if not file.is_dir() and chance.random() < 0.5:
            file.unlink()


def _dangling(cache: Path, _: random.Random) -> None:
    for python in cache.glob("env-*/bin/python"):
        python.unlink()
        python.symlink_to("/nonexistent/python")


def _a_damaged_wheel(cache: Path, chance: random.Random) -> None:
    kept = cache / "downloads" / "vllm-0.19.1"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "vllm-0.19.1-py3-none-any.whl").write_bytes(chance.randbytes(chance.randrange(300)))


def _a_leftover(cache: Path, _: random.Random) -> None:
    for name in ("vllm-0.19.1.partial/vllm/x.py", "downloads/scratch/arriving/x.whl"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("half")


def _a_file_for_downloads(cache: Path, _: random.Random) -> None:
    cache.mkdir(exist_ok=True)
    shutil.rmtree(cache / "downloads", ignore_errors=True)
    (cache / "downloads").write_text("no folder")


def _a_folder_for_the_lock(cache: Path, _: random.Random) -> None:
    cache.mkdir(exist_ok=True)
    (cache / "lock").unlink(missing_ok=True)
    (cache / "lock").mkdir()


SPOILERS: dict[str, Spoiler] = {
    "nothing": lambda *_: None,
    "a file is missing": _of_a_file(lambda file, _: file.unlink()),
    "a file was replaced": _of_a_file(lambda file, chance: file.write_bytes(chance.randbytes(9))),
    "a file is truncated": _of_a_file(lambda file, _: os.truncate(file, 5)),
    "an extra module": _of_a_tree(lambda tree, _: (tree / "torch.py").write_text("x")),
    "a folder is empty": _of_a_tree(_emptied),
    "half a folder is missing": _of_a_tree(_half_gone),
    "a file instead of a folder": _of_a_tree(_a_file_in_its_place),
    "a link to itself instead of a folder": _of_a_tree(_a_loop_in_its_place),
    "Python is missing": _dangling,
    "a damaged wheel": _a_damaged_wheel,
    "half an installation": _a_leftover,
    "a file instead of the download folder": _a_file_for_downloads,
    "a folder instead of the lock file": _a_folder_for_the_lock,
}


def main() -> int:
    options = parser(__doc__, rounds=300).parse_args()
    began = time.monotonic()
    seeds = range(options.seed * 10_000, options.seed * 10_000 + options.rounds)
    with ThreadPoolExecutor(options.jobs) as pool:
        reports = [*pool.map(attack, seeds)]
    spoilt = Counter(name for report in reports for name in report.spoilers)
    blamed = Counter(name for report in reports if report.wrong for name in report.spoilers)
    lines = ["| the cache before | times | in rounds that went wrong |", "|---|---|---|"]
    lines += [f"| {name} | {spoilt[name]:,} | {blamed[name]:,} |" for name in SPOILERS]
    endings = Counter(ending for report in reports for ending in report.endings)
    counts = ", ".join(f"{number:,} {ending}" for ending, number in sorted(endings.items()))
    spent = f"in {time.monotonic() - began:.0f} s, {options.jobs} at a time (seed {options.seed})"
    wrong = [line for report in reports for line in report.wrong]
    alone = f"Another {len(reports):,} installations were left undisturbed."
    total = f"The attack made {endings.total():,} installations {spent}: {counts}. {alone}"
    lines += ["", f"{total} {went_wrong(len(wrong), 'installation')}"]
    return finish("installs", lines, wrong, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
