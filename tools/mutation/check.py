"""Mutation tests of the models: can their code change without any test noticing?

    make tool NAME=mutation.check OPTIONS="forward.py vllm/queue.py"    # only these files
    make tool NAME=mutation.check OPTIONS=vllm                          # only this folder

The operators of cosmic-ray create mutants of `model`. The fast tests in `tests/model` that need
only this checkout must kill them. A mutant that survives must be listed in `survivors.toml` with
the reason. At most 3 % may survive, not counting mutants that behave like the original
("equivalent: ...").

A mutant exists only in the memory of the forked process that tests it. It is tested first with the
test file named after its module, then with all others. A test also notices a mutant if it needs far
more CPU time or memory than without it. A change that breaks the import of the module does not
count, because no test is needed to notice it.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, Phase, settings

from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew
from schedproof.tools.mutation.operators import Change, Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("survivors.toml")
TOLERATED = 0.03
MEMORY = 4 << 30
# Leave out searches, and tests that are skipped without the published tables.
QUICK = (
    *("-m", "not hypothesis", "--ignore-glob=*/test_golden_*", "--ignore-glob=*/test_figures.py"),
    *("-x", "-q", "--assert=plain", "-p", "no:randomly", "-p", "no:cacheprovider"),
)
# Exit codes of a child process, in addition to those of pytest.
BROKEN = 70
NO_MODULE = 71


def chosen(file: str, given: list[str]) -> bool:
    """Return whether `given` selects a file of `model` by its path, its name or its folder."""
    path = PurePosixPath(file)
    return not given or not {file, path.name, str(path.parent)}.isdisjoint(given)


class Quickest:
    """A pytest plugin that runs the quickest tests first, gives each a time limit, and does not
    shrink."""

    def __init__(self, took: dict[str, float]) -> None:
        self.took = took

    def pytest_sessionstart(self) -> None:
        settings.register_profile(
            "mutation",
            settings.get_profile("ci"),
            max_examples=20,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow],
        )
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.took.get(item.nodeid, 0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # CPU time, so that a busy machine does not change the result.
        signal.setitimer(signal.ITIMER_PROF, 2 + 5 * self.took.get(nodeid, 60))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took[report.nodeid] = self.took.get(report.nodeid, 0) + report.duration


def run(took: dict[str, float], *selection: str) -> int:
    """Run the selected tests and return the exit code."""
    signal.setitimer(signal.ITIMER_PROF, 60)
    return int(pytest.main([*QUICK, *selection], plugins=[Quickest(took)]))


def run_tests(took: dict[str, float], mutant: Mutant) -> int:
    """Return the exit code of the first tests that notice a mutant. Return `NO_MODULE` if it
    cannot be imported."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    file = PurePosixPath(mutant.change.file)
    with imported_anew(mutant.texts):
        try:
            import_module(".".join(("schedproof", "model", *file.with_suffix("").parts)))
        except Exception:
            return NO_MODULE
        own = Path("tests", "model", file).with_name(f"test_{file.name}")
        if not own.exists():
            return run(took, "tests/model")
        code = run(took, str(own))
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            code = run(took, "tests/model", f"--ignore={own}")
        return code


def start(times: Path, took: dict[str, float], mutant: Mutant | None) -> int:
    """Start a process that runs the tests, and return its id.

    With a mutant, it stops at the first failure. Without one, it runs all tests and writes their
    times.
    """
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.chdir(ROOT)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.setitimer(signal.ITIMER_PROF, 60)
        if mutant is None:
            with imported_anew({}):
                code = run(took, "tests/model")
            times.write_text(json.dumps(took), encoding="utf-8")
        else:
            code = run_tests(took, mutant)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def outcomes(times: Path, mutants: list[Mutant], jobs: int) -> Iterator[tuple[Mutant, int]]:
    """Yield each mutant with the exit code of its tests. If a signal ended them, the code is the
    negative number of the signal."""
    if os.waitstatus_to_exitcode(os.waitpid(start(times, {}, None), 0)[1]):
        sys.exit("the tests fail without a mutant")
    took = json.loads(times.read_text(encoding="utf-8"))
    running: dict[int, Mutant] = {}
    waiting = iter(mutants)
    try:
        while True:
            while len(running) < jobs and (mutant := next(waiting, None)):
                running[start(times, took, mutant)] = mutant
            if not running:
                return
            pid, status = os.wait()
            yield running.pop(pid), os.waitstatus_to_exitcode(status)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def row(name: str, codes: list[int]) -> str:
    """Return a line of figures about some mutants, given the exit codes of their tests."""
    alive, late = codes.count(0), codes.count(-signal.SIGPROF)
    killed = f"{len(codes) - alive} ({late} out of time)"
    share = f"{alive / len(codes):.1%}" if codes else ""
    return f"{name:20} {len(codes):8} {killed:>22} {alive:9} {share:>6}"


def main() -> int:
    """Test the mutants and print the figures. Return 1 if the list of survivors is wrong or too
    many survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="files or folders in model/; default: all")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    # If a line occurs twice in a definition, list the mutants of both occurrences.
    reasons = [
        (
            Change(survivor["file"], survivor["place"], survivor["before"], survivor["after"]),
            survivor["reason"],
        )
        for survivor in tomllib.loads(LISTED.read_text(encoding="utf-8"))["survivor"]
    ]
    listed = Counter(change for change, reason in reasons if reason)
    equivalent = Counter(change for change, reason in reasons if reason.startswith("equivalent"))
    codes: dict[str, list[int]] = {}
    alive = Counter[Change]()
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(path.relative_to(MODEL).as_posix() for path in MODEL.rglob("*.py"))
        files = [file for file in files if chosen(file, given.files)]
        mutants = [mutant for file in files for mutant in mutants_of(file)]
        print(f"{len(mutants)} changes", flush=True)
        for mutant, code in outcomes(Path(folder, "took.json"), mutants, given.jobs):
            if code == BROKEN:
                sys.exit(f"could not test {mutant.change}")
            if code == NO_MODULE:
                continue
            codes.setdefault(mutant.change.file, []).append(code)
            if code == 0:
                alive[mutant.change] += 1
                known = "listed" if mutant.change in listed else "NOT LISTED"
                print(f"line {mutant.line} survives, {known}: {mutant.change}", flush=True)
    everything = [code for those in codes.values() for code in those]
    print(f"{'file':20} {'mutants':>8} {'killed':>22} {'survived':>9}")
    print(*(row(*counted) for counted in (*codes.items(), ("all", everything))), sep="\n")
    unlisted = alive - listed
    killed = Counter(survivor for survivor in (listed - alive).elements() if survivor.file in codes)
    for title, changes in (("survive, not listed", unlisted), ("listed, but killed", killed)):
        for change in sorted(changes):
            print(f"{title}: {change.file}: {change.place}\n- {change.before}\n+ {change.after}")
    noticeable = (alive - equivalent).total()
    too_many = not given.files and noticeable > TOLERATED * len(everything)
    if too_many:
        print(f"more than {TOLERATED:.0%} survive and are not equivalent")
    return 1 if unlisted or killed or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
