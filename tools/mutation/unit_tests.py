"""Which changes of vLLM's scheduler do its own unit tests find, which does a gate find, and how
soon?

    make tool NAME=mutation.unit_tests OPTIONS="--vllm 0.33.0 --tests DIR --seed 56 --changes 40"

The operators of cosmic-ray change the release's scheduler and KV cache in a copy of the package.
Changes are drawn by `--seed`, each place and operator with the same chance. DIR is the folder
`tests/v1/core` of vLLM's repository at the release's tag, or of its source distribution. Each
change is judged

- by `pytest -x` on DIR, in the order in which pytest collects it, without the tests that fail on
  the unchanged release (most of these need weights, an accelerator or a network). A run that takes
  twice as long as on the unchanged release has found a hang;
- by a gate of the profile `quick`, with the release as its base.

A gate has found a change if it prints that the changed release breaks a rule, makes other decisions
than the base, or does not start. The time is the CPU time until then, or until the first test
fails. If nothing is found, the time is a lower bound. Both sides begin in a process that has
imported the packages that vLLM needs, but not vLLM itself; the import of vLLM counts.

vLLM's tests read the configurations of a few models from a hub. The tool writes small ones, with
the architectures of these models and the default sizes.

Results are kept in `--ledger`, and a later run continues from them. To measure again, delete lines
of the file.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedproof.gate.compare.change import base_options
from schedproof.gate.judging import verdict
from schedproof.gate.judging.context import GateContext, GateOptions, opened_gate
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.profiles import set_hypothesis_home
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.pipe import PipeTarget, forking
from schedproof.gate.targets.releases import Prepared, code_of, prepare
from schedproof.gate.targets.supported_releases import Release, parse_release
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.faults import ConfigRefused, TargetFault
from schedproof.properties.rules.registry import LOCKSTEP
from schedproof.spec.catalogue import load
from schedproof.tools.benchmarks.figure import NotMeasured
from schedproof.tools.benchmarks.overhead import cpu_of

from . import pytest_server
from .operators import changed, first_difference, places_of

CORE = Path("vllm/v1/core")
FILES = (
    "sched/scheduler.py",
    "sched/request_queue.py",
    "kv_cache_manager.py",
    "kv_cache_coordinator.py",
    "single_type_kv_cache_manager.py",
    "block_pool.py",
)
UNIT_TESTS, GATE = "unit tests", "gate"
MODELS = {
    "facebook/opt-125m": ("opt", "OPTForCausalLM"),
    "facebook/opt-350m": ("opt", "OPTForCausalLM"),
    "llava-hf/llava-1.5-7b-hf": ("llava", "LlavaForConditionalGeneration"),
    "Qwen/Qwen1.5-7B": ("qwen2", "Qwen2ForCausalLM"),
    "Qwen/Qwen3-0.6B": ("qwen3", "Qwen3ForCausalLM"),
}
STEP_LIMIT = 60.0  # seconds; on a busy machine, a target may take long without hanging
WHOLE = 1_500  # CPU seconds for all unit tests on the unchanged release


class Place(NamedTuple):
    """A place in a file of `CORE`: the operator and the number of its occurrence. `name` is its
    name in the ledger."""

    file: str
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        return f"{self.file} {self.operator} {self.occurrence}"


class Result(NamedTuple):
    """What one side found ("" if nothing), and the CPU seconds that it took."""

    found: str
    seconds: float


def drawn(core: Path, files: Sequence[str], seed: int) -> list[Place]:
    """Return the places in all files in a random order."""
    places = [
        Place(file, operator, number)
        for file in files
        for operator, number, _ in places_of((core / file).read_text(encoding="utf-8"))
    ]
    random.Random(seed).shuffle(places)
    return places


def changes(core: Path, seed: int) -> Iterator[tuple[Place, str, str]]:
    """Yield changes of `FILES` in a random order: the place, the changed source, and the changed
    line in words. No change comes twice."""
    seen = set[tuple[str, str]]()
    for place in drawn(core, FILES, seed):
        source = (core / place.file).read_text(encoding="utf-8")
        text = changed(source, place.operator, place.occurrence)
        if text is not None and (place.file, text) not in seen:
            seen.add((place.file, text))
            line, old, new = first_difference(source, text)
            yield place, text, f"line {line}: {old} -> {new}"


class Ledger:
    """The results so far, in a file with one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str], Any] = {}
        if path.is_file():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    entry = json.loads(line)
                    self._known[entry["change"], entry["side"]] = entry["result"]
                except (ValueError, TypeError, KeyError):
                    sys.exit(f"{path}: line {number}: not a line that this tool has written")

    def get(self, change: str, side: str, ask: Callable[[], Any]) -> Any:
        """Return the result if it is known. Otherwise, get it from `ask` and store it."""
        if (change, side) not in self._known:
            result = self._known[change, side] = ask()
            entry = {"change": change, "side": side, "result": result}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        return self._known[change, side]


def copy_package(code: Path, folder: Path) -> None:
    """Make a folder from which the package can be imported: `CORE` is copied, anything else is a
    link. Compiled modules are linked as well, so that only a changed file is compiled."""
    for metadata in code.glob("vllm-*.dist-info"):
        (folder / metadata.name).symlink_to(metadata)
    here = Path("vllm")
    for inner in (Path("v1"), Path("core")):
        (folder / here).mkdir()
        for entry in (code / here).iterdir():
            if entry.name != inner.name:
                (folder / here / entry.name).symlink_to(entry)
        here /= inner
    shutil.copytree(code / CORE, folder / CORE)


def write_models(hub: Path) -> None:
    """Write the configurations of `MODELS` in the layout of a hub's cache."""
    for name, (kind, architecture) in MODELS.items():
        folder, commit = hub / f"models--{name.replace('/', '--')}", "0" * 40
        config = {"model_type": kind, "architectures": [architecture], "torch_dtype": "float16"}
        for path, text in (
            (folder / "refs" / "main", commit),
            (folder / "snapshots" / commit / "config.json", json.dumps(config)),
        ):
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")


class Ran(NamedTuple):
    """The names of the tests that failed, how many ran, the CPU seconds, and whether the run was
    killed because it took too long."""

    failed: list[str]
    tests: int
    seconds: float
    killed: bool


class UnitTests:
    """Runs the unit tests in `tests`, a folder whose path ends in tests/v1/core, on the package in
    `package`. `scratch` is a folder for what the runs write."""

    def __init__(self, prepared: Prepared, tests: Path, package: Path, scratch: Path) -> None:
        write_models(scratch / "hub")
        (scratch / "tests").symlink_to(tests.parents[1])
        env = {name: value for name, value in prepared.env.items() if name != "PYTHONPATH"}
        env |= {
            "HF_HOME": str(scratch),
            "VLLM_TARGET_DEVICE": "cpu",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._out = scratch / "tests.json"
        self._job = {
            "folder": str(scratch),
            "path": [str(package), str(scratch)],
            "tests": "/".join(tests.parts[-3:]),
            "log": str(scratch / "tests.log"),
            "out": str(self._out),
        }
        own = str(Path(pytest.__file__).parents[1])
        pipe = subprocess.PIPE
        command = [prepared.command[0], "-P", pytest_server.__file__, own, *prepared.imports]
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True)

    def run(self, seconds: float, left_out: Sequence[str], *options: str) -> Ran:
        """Run the tests for at most this many CPU seconds."""
        job = {**self._job, "seconds": seconds, "left_out": left_out, "options": options}
        self._out.unlink(missing_ok=True)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(job), file=self._server.stdin, flush=True)
        used, killed = json.loads(self._server.stdout.readline())
        noted = json.loads(self._out.read_text()) if self._out.exists() else {}
        return Ran(noted.get("failed", []), noted.get("tests", 0), used, killed)

    def on_the_release(self) -> Ran:
        """Run all tests, even if some files cannot be collected."""
        return self.run(WHOLE, [], "--continue-on-collection-errors")

    def judge(self, seconds: float, left_out: Sequence[str]) -> Result:
        """Run the tests until one fails."""
        failed, tests, used, killed = self.run(seconds, left_out, "-x")
        if not failed and (killed or not tests):
            return Result("hangs" if killed else "pytest does not start", used)
        return Result(failed[0] if failed else "", used)

    def end(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.communicate()


class Gate:
    """Judges the package in `package` with the release as its base. `scratch` is a folder for
    what the gates write."""

    def __init__(self, release: str, package: Path, scratch: Path, stack: ExitStack) -> None:
        self._spec, self._base = parse_target("vllm", package), parse_target(release)
        self._scratch = scratch
        pipes = [
            pipe
            for spec in (self._spec, self._base)
            if isinstance(pipe := stack.enter_context(opened(spec)).target, PipeTarget)
        ]
        self._forks = stack.enter_context(forking(pipes))
        set_hypothesis_home()

    def judge(self, seconds: int) -> Result:
        """Judge the package in a separate process, until the first finding."""
        out = self._scratch / "gate.json"
        out.unlink(missing_ok=True)
        process = os.fork()
        if not process:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds))
                signal.alarm(20 * seconds)
                self._judge(seconds, out)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.waitpid(process, 0)
        return Result(*json.loads(out.read_text())) if out.exists() else Result("", seconds)

    def _judge(self, seconds: int, out: Path) -> None:
        """Judge the package in this process. End the process once something is found or the time is
        up."""
        system, revision = "vllm", self._spec.default_revision() or ""
        options = GateOptions(
            self._spec,
            system,
            revision,
            [rule for rule in load(system, revision) if rule.id != LOCKSTEP],
            profile_name="quick",
            step_limit=STEP_LIMIT,
            out=self._scratch / "findings",
            base=base_options(self._base, system, revision),
            compare_with="none",
            forks=self._forks,
        )
        began = time.process_time()
        pipes: list[PipeTarget] = []

        def used() -> float:
            return time.process_time() - began + sum(map(cpu_of_target, pipes))

        def end(found: str) -> None:
            out.write_text(json.dumps(Result(found, used())))
            os._exit(0)

        def report(event: verdict.Event | Any) -> None:
            if (found := finding_in(event)) is not None:
                end(found)
            if used() > seconds:
                end("")

        try:
            with opened_gate(options, offline=True) as subject:
                assert subject.base is not None
                sides = [side.target for side in subject.base.pair.sides]
                pipes += [target for target in sides if isinstance(target, PipeTarget)]
                judge(
                    GateContext(options, subject.target, report, subject.stderr, base=subject.base)
                )
        except (TargetFault, ConfigRefused) as error:
            end(f"does not start: {error}")


def cpu_of_target(pipe: PipeTarget) -> float:
    """Return the CPU seconds of a target's process; 0 if it does not run."""
    try:
        return 0.0 if pipe.process_id is None else cpu_of(pipe.process_id)
    except NotMeasured:
        return 0.0


def finding_in(event: Any) -> str | None:
    """Return what a gate's event says about the change: the broken rule or the difference, "" if
    the gate ends without a finding, or None if the event says nothing."""
    if isinstance(event, verdict.Found):
        return event.finding.rule
    if isinstance(event, verdict.Differed):
        return f"differs {event.what}"
    if isinstance(event, verdict.Concluded):
        judged = event.verdict
        return judged.findings[0].rule if judged.findings else judged.fault or ""
    return None


def release_of(target: str) -> Release:
    """Return the release that `target` names, as vllm==VERSION."""
    release = parse_release(target)
    assert release is not None
    return release


def table(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Yield the lines of the table, with a row for each side."""
    heads = "side", "changes", "found", "median", "CPU in all", "found per CPU minute"
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for side, of_side in results.items():
        found = sum(bool(result.found) for result in of_side)
        ranked = sorted(of_side, key=lambda result: (not result.found, result.seconds))
        middle = ranked[(len(ranked) - 1) // 2]
        spent = sum(result.seconds for result in of_side)
        until = f"{'' if middle.found else '> '}{middle.seconds:.1f} s"
        rate = f"{60 * found / spent:.2f}"
        yield f"| {side} | {len(of_side)} | {found} | {until} | {spent:,.0f} s | {rate} |"


def main() -> int:
    """Judge the changes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--vllm", default="0.33.0", help="an installed release")
    parser.add_argument("--tests", type=Path, required=True, help="the folder tests/v1/core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=60, help="of CPU for a gate")
    parser.add_argument("--ledger", type=Path, default=Path("unit-tests.jsonl"))
    given = parser.parse_args()
    release, tests = f"vllm=={given.vllm}", given.tests.absolute()
    if not (tests / "utils.py").is_file() or tests.parts[-3:] != ("tests", "v1", "core"):
        parser.error(f"--tests: {given.tests}: not the folder tests/v1/core of vLLM's repository")
    ledger = Ledger(given.ledger)
    results: dict[str, list[Result]] = {UNIT_TESTS: [], GATE: []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        package, scratch = Path(folder, "package"), Path(folder, "scratch")
        for made in (package, scratch):
            made.mkdir()
        code = code_of(release_of(release))
        copy_package(code, package)
        prepared = prepare(release_of(release), report=lambda _: None)
        unit_tests = UnitTests(prepared, tests, package, scratch)
        stack.callback(unit_tests.end)
        gate = Gate(release, package, scratch, stack)
        intact = Ran(*ledger.get(release, UNIT_TESTS, unit_tests.on_the_release))
        if not intact.tests:
            sys.exit(f"{given.tests}: no test runs on {release}")
        print(f"{release}: {intact.tests} tests, {len(intact.failed)} left out", file=sys.stderr)
        for number, (place, text, words) in enumerate(changes(code / CORE, given.seed)):
            if number == given.changes:
                break
            key = f"{release} {place.name} {words}"
            file = package / CORE / place.file
            file.write_text(text, encoding="utf-8")
            asked = {
                UNIT_TESTS: lambda: unit_tests.judge(2 * intact.seconds, intact.failed),
                GATE: lambda: gate.judge(given.seconds),
            }
            found = {side: Result(*ledger.get(key, side, ask)) for side, ask in asked.items()}
            shutil.copy2(code / CORE / place.file, file)
            for side, result in found.items():
                results[side].append(result)
            said = "; ".join(
                f"{side}: {result[0] or 'nothing'} ({result[1]:.1f} s)"
                for side, result in found.items()
            )
            print(f"{place.file}, {words}: {said}", file=sys.stderr, flush=True)
    print(*table(results), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
