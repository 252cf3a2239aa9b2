"""`schedproof explore`: explore every behaviour of the chosen scopes, in several processes.

Unfinished explorations are saved and can be resumed. The file consists of a digest, which reveals
damage, and a pickled `Exploration`. Unpickling allows only this package's own classes. Only the
version that wrote a file can read it, because another version may have another model. A digest is
not a signature, so never use another user's file (`docs/explanation/security.md`).
"""

import gc
import hashlib
import io
import pickle
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.target import ModelTarget
from ...properties.checking.replay import Outcome
from ...properties.checking.replay import replay as run_replay
from ...properties.rules.registry import LOCKSTEP, applies, can_be_explored
from ...solver.exploration.exploration import (
    Counterexample,
    Exploration,
    ExplorationResult,
    ExploreOptions,
)
from ...solver.exploration.scope import Aborts, Scope
from ...solver.systems import explored_systems, space_of
from ...spec.catalogue import Rule, select
from ..files.disk import check_regular, name_file_in_errors, write
from ..files.scenario_file import FileError
from ..judging.rule_choice import check_applies, rules_named
from ..processes.executors import code_version
from ..processes.work_process import shielded, spawn_context

ABORTS: tuple[Aborts, ...] = get_args(Aborts)


def check_has_scopes(system: str, before_valid: str = "; valid") -> None:
    """Raise InputError unless this system has small scopes to explore."""
    explorable = explored_systems()
    if system not in explorable:
        valid = ", ".join(explorable)
        raise InputError("$.system", f"{system} has no scopes to explore{before_valid}: {valid}")


def chosen_scopes(names: Sequence[str] | None, system: str, revision: str) -> list[Scope]:
    """Return the scopes with these names, or all scopes of the revision."""
    valid = [scope for scope in space_of(system).scopes if scope.belongs_to(revision)]
    by_name = {scope.name: scope for scope in valid}
    for name in names or ():
        if name not in by_name:
            words = ", ".join(by_name)
            raise InputError(
                "--scope", f"{name!r} is not a scope of revision {revision}; valid: {words}"
            )
    return [by_name[name] for name in names or by_name]


def change_scope(
    scope: Scope, requests: int | None, limits: str | None, aborts: str | None
) -> Scope:
    if requests is not None:
        if not 1 <= requests <= 6:
            raise InputError("--requests", f"{requests}; valid: 1 to 6")
        scope = replace(scope, requests=requests)
    if aborts is not None:
        if aborts not in ABORTS:
            raise InputError("--aborts", f"{aborts!r}; valid: {', '.join(ABORTS)}")
        scope = replace(scope, aborts=aborts)
    return scope if limits is None else replace(scope, limits=read_limits(limits))


def read_limits(words: str) -> tuple[int, ...]:
    limits: set[int] = set()
    for part in words.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            valid = "up to 1000 numbers of tokens below 1,000,000, such as 6-40 or 12,20,40"
            raise InputError("--limits", f"{words!r:.80}; valid: {valid}")
        limits |= set(range(int(ends[0]), int(ends[1]) + 1))
    if not limits or min(limits) < 1 or len(limits) > 1000:
        raise InputError("--limits", f"{words!r}; valid: 1 to 1000 limits of at least 1")
    return tuple(sorted(limits))


def chosen_rules(
    catalogue: Sequence[Rule], words: Sequence[str] | None, revision: str
) -> Sequence[Rule]:
    """Return the rules with these ids (`A,B` stands for A and B), or all rules of the revision."""
    named = rules_named(catalogue, words) if words else {}
    rules = [rule for rule in catalogue if not words or rule.id in named]
    for chosen in rules:
        if not named.get(chosen.id):
            continue
        if not chosen.checked:
            raise InputError(
                "--rule", f"{chosen.id} has no predicate: {chosen.unchecked or chosen.planned}"
            )
        if chosen.id == LOCKSTEP:
            raise InputError(
                "--rule",
                (
                    f"{chosen.id} compares a target with the model, and here the model runs "
                    "alone; valid: any other rule"
                ),
            )
        if not can_be_explored(chosen):
            raise InputError(
                "--rule",
                f"{chosen.id} cannot be checked by exploring states; use `schedproof gate`",
            )
        check_applies(chosen, revision)
    return [rule for rule in rules if can_be_explored(rule) and applies(rule, revision)]


REPORT_EVERY = 0.5  # seconds
MEMORY_MB = 4096  # for each process, unless the user sets another limit


@dataclass(frozen=True)
class Budget:
    """The limits of an exploration: `seconds` for all processes together, and `memory_mb` for each
    of them."""

    seconds: float
    memory_mb: int
    checkpoint: Path | None = None
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """The progress of a part that is running."""

    options: ExploreOptions
    states: int
    transitions: int
    open: int


@dataclass(frozen=True)
class Ended:
    """The end of a part. `why` gives the reason if the part is incomplete; it is "" if every
    behaviour was explored."""

    result: ExplorationResult
    why: str
    seconds: float
    memory_mb: int


@dataclass(frozen=True)
class Failed:
    """A part that could not be explored, and the reason."""

    options: ExploreOptions
    why: str


Event = Progress | Ended | Failed


def explore(
    parts: Sequence[ExploreOptions], rules: Sequence[Rule], jobs: int, budget: Budget
) -> Iterator[Event]:
    """Explore the parts, `jobs` at a time, and yield events as they happen.

    After Ctrl-C, every process ends and keeps its results so far, and no further part starts. A
    second Ctrl-C ends everything at once.
    """
    context = spawn_context()
    stop = context.Event()
    ends = time.monotonic() + budget.seconds
    remaining = list(parts)
    running: dict[Connection, tuple[Any, ExploreOptions]] = {}

    def interrupted(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        while remaining or running:
            if time.monotonic() > ends or stop.is_set():
                remaining.clear()
            while remaining and len(running) < jobs:
                options = remaining.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                args = (theirs, stop, options, rules, budget, ends)
                process = context.Process(target=_work, args=args)
                with shielded():
                    process.start()
                theirs.close()
                running[ours] = (process, options)
            try:
                ready = wait(list(running), timeout=1.0)
            except KeyboardInterrupt:  # from SIGTERM or a time limit
                if stop.is_set():
                    raise
                stop.set()
                continue
            for pipe in [pipe for pipe in running if pipe in ready]:
                process, options = running[pipe]
                try:
                    event = pipe.recv()
                except EOFError:
                    event = Failed(options, "its process died")
                yield event
                if not isinstance(event, Progress):
                    del running[pipe]
                    process.join()
    finally:
        signal.signal(signal.SIGINT, before)
        for process, _ in running.values():
            process.kill()
            process.join()


def _work(
    pipe: Connection,
    stop: Any,
    options: ExploreOptions,
    rules: Sequence[Rule],
    budget: Budget,
    ends: float,
) -> None:
    """Explore one part in a separate process. Stop only after a report, when every state is either
    fully expanded or untouched."""
    gc.set_threshold(100_000, 20, 50)  # all states stay in use, so there is little to collect
    began = reported = time.monotonic()
    try:
        run = load(budget.checkpoint, options, rules) if budget.checkpoint else None
        if run is None:
            choose = Random(budget.seed).randrange if options.order == "random" else None
            run = Exploration(options, rules, choose)
        why = ""
        for state in run.search.run():
            now = time.monotonic()
            if stop.is_set():
                why = "interrupted"
            elif now > ends:
                why = "the time limit was reached"
            elif memory_mb() > budget.memory_mb:
                why = f"the memory limit of {budget.memory_mb} MB was reached"
            if why:
                break
            if now - reported > REPORT_EVERY:
                reported = now
                pipe.send(Progress(options, state.states, state.transitions, state.open))
        result = run.result()
        if not why and not result.complete:
            why = "sampled" if options.order == "random" else "paths were cut"
        if budget.checkpoint and options.order != "random":
            try:
                save_checkpoint(budget.checkpoint, run)
            except FileError as error:
                why = f"{why or 'all explored'}, but not saved: {error}"
        pipe.send(Ended(result, why, time.monotonic() - began, memory_mb()))
    except Exception as error:
        pipe.send(Failed(options, f"{type(error).__name__}: {error}"))


def memory_mb() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // (1024 if sys.platform != "darwin" else 1024 * 1024)


def parts_of(options: ExploreOptions, jobs: int) -> list[ExploreOptions]:
    """Split an exploration into work for `jobs` processes. Neighbouring limits stay together,
    because they have most runs in common. Random walks are not split, so that the same seed always
    takes the same walks."""
    limits = options.scope.limits
    if jobs < 2 or len(limits) < 8 or options.order == "random":
        return [options]
    size = -(-len(limits) // jobs)
    return [
        replace(options, scope=replace(options.scope, limits=limits[start : start + size]))
        for start in range(0, len(limits), size)
    ]


def confirm(
    counterexample: Counterexample, rules: Sequence[Rule], formula: str | None = None
) -> dict[int, tuple[Scenario, Outcome]]:
    """Replay the counterexample on the model at each of its limits. Return the results for the
    limits at which it breaks the rule."""
    [rule] = select(rules, [counterexample.rule])
    broken = {}
    for limit in counterexample.limits:
        config = {
            **counterexample.scenario.config,
            space_of(counterexample.scenario.system).limit_key: limit,
        }
        scenario = msgspec.structs.replace(counterexample.scenario, config=config)
        outcome = run_replay(ModelTarget(formula), scenario, [rule])
        if outcome.broken:
            broken[limit] = (scenario, outcome)
    return broken


# These packages do no input or output, so unpickling their classes can do no harm.
PURE = tuple(f"schedproof.{layer}." for layer in ("spec", "model", "properties", "solver"))
# Functions that a saved run refers to: predicates of rules, and functions of the models' revisions.
FUNCTIONS = re.compile(r"schedproof\.(properties\.(rules|\w+\.predicates)\.|model\.\w+\.\w+$)")
MAGIC = b"schedproof exploration 2\n"
DIGEST = 32  # bytes
HARMLESS = {
    ("builtins", "frozenset"),
    ("builtins", "range"),
    ("builtins", "set"),
    ("collections", "deque"),
    ("msgspec._core", "UNSET"),
    ("msgspec._utils", "rebuild"),
}


def save_checkpoint(folder: Path, run: Exploration) -> None:
    path = _path(folder, run.options, run.rules)
    with name_file_in_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
    data = pickle.dumps(run)
    write(path, MAGIC + version_of_code() + _digest(data) + data)


def load(folder: Path, options: ExploreOptions, rules: Sequence[Rule]) -> Exploration | None:
    """Return the saved exploration, or None. Raise FileError if this version of schedproof
    cannot use it."""
    ids = tuple(rule.id for rule in rules)
    path = _path(folder, options, ids)
    try:
        path.stat()
        check_regular(path)
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    start = len(MAGIC) + len(version_of_code())
    if not data.startswith(MAGIC + version_of_code()):
        raise FileError(
            f"{path}: not an exploration of this version of schedproof; "
            "use another folder, or delete the file"
        )
    kept = data[start + DIGEST :]
    if data[start : start + DIGEST] != _digest(kept):
        raise FileError(f"{path}: damaged (its digest does not match); delete the file")
    try:
        run = _Reader(io.BytesIO(kept)).load()
    except Exception as error:
        raise FileError(f"{path}: damaged ({error}); delete the file") from None
    if not isinstance(run, Exploration) or (run.options, run.rules) != (options, ids):
        raise FileError(f"{path}: saved with other options or rules; valid: another folder")
    return run


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in HARMLESS:
            return super().find_class(module, name)
        if module.startswith(PURE) and "." not in name:
            member = super().find_class(module, name)
            # A pickle can call any function that it may load, with any arguments. A mere alias of
            # `getattr` would be enough to reach `eval`.
            held = isinstance(member, type) or FUNCTIONS.match(module)
            if held and getattr(member, "__module__", "") == module:
                return member
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an exploration")


def _path(folder: Path, options: ExploreOptions, rules: Sequence[str]) -> Path:
    question = hashlib.sha256(repr((options, tuple(rules))).encode()).hexdigest()[:12]
    return (
        folder / f"{options.revision}-{options.scope.name.replace(' ', '-')}-{question}.exploration"
    )


def version_of_code() -> bytes:
    return code_version("spec", "model", "properties", "solver").encode() + b"\n"
