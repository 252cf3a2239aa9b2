"""Open a target: the model in this process, and anything else in a separate process."""

import ast
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...model.faults import TargetNotStarted
from ...model.own_code import describe_exception
from ...model.target import ModelTarget, Target
from . import checkouts, coverage, releases
from .jsonl import REQUIRED
from .pipe import PipeTarget
from .release_adapter import BEYOND_START_UP
from .scheduler_class import OWN_CLASS
from .target_spec import MEMORY_LIMIT, STEP_LIMIT, TargetSpec, UnknownTargetError

COMPLAINT = "schedproof: "
# Tracebacks pass through these files; they are not the user's code.
LOADERS = {__file__, ast.__file__, coverage.__file__}


class Opened(NamedTuple):
    """A target, and a function that returns what it wrote to stderr."""

    target: Target
    stderr: Callable[[], str]


@contextmanager
def opened(
    spec: TargetSpec,
    *,
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    offline: bool = False,
    report: Callable[[str], None] = lambda _: None,
    folder: Path | None = None,
    imports: Sequence[str] = (),
) -> Iterator[Opened]:
    """Open the target that `spec` names, and end its process when the block ends.

    A factory or a command runs in `folder` (default: the working directory). The factory's module
    is searched for there and in the folders `imports`. `report` receives the messages printed while
    a release is installed. Raise UnknownTargetError, ReleaseError or InputError if the target is
    not available. The factory itself is called only when the target first starts, so its errors
    come later.
    """
    if spec.is_model:
        yield Opened(ModelTarget(spec.formula), lambda: "")
        return
    command, env, slow = _command(spec, imports, offline=offline, report=report)
    env = {**(os.environ if env is None else env)}
    env.pop(coverage.VARIABLE, None)  # another gate may have started this process
    env.pop("PYTHONOPTIMIZE", None)  # an engine's failed assertions are findings
    if spec.coverage is not None:
        env[coverage.VARIABLE] = str(spec.coverage)
    pipe = PipeTarget(
        command,
        env=env,
        folder=folder if spec.kind in ("factory", "command") else None,
        step_limit=step_limit,
        memory_limit=memory_limit,
        imports=slow,
    )
    try:
        with pipe:
            yield Opened(pipe, lambda: pipe.stderr_tail)
    except TargetNotStarted as error:
        # If `schedproof serve` rejects the factory, show its message and not that of the process.
        lines = error.stderr_tail.strip().splitlines()[-1:]
        if lines and lines[0].startswith(f"{COMPLAINT}TARGET "):
            raise UnknownTargetError(lines[0].removeprefix(COMPLAINT)) from None
        raise


def make_target(spec: TargetSpec) -> Any:
    """Call the factory `MODULE:FACTORY` and return the target that it makes.

    Output of the module goes to stderr, since stdout is reserved for replies. Raise
    UnknownTargetError if the module or the name does not exist, or if the result is not a target.
    """
    if spec.kind != "factory":
        raise UnknownTargetError(f"TARGET {spec.text!r}: valid here: MODULE:FACTORY")
    module_name, factory_name = spec.module, spec.factory
    sys.path.insert(0, "")
    coverage.count_beside(module_name)
    with _stdout_to_stderr():
        try:
            module = importlib.import_module(module_name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UnknownTargetError(
                f"TARGET {spec.text!r}: cannot import {module_name!r} ({_describe(error)})"
            ) from None
        factory = getattr(module, factory_name, None)
        if not callable(factory):
            raise UnknownTargetError(
                f"TARGET {spec.text!r}: {module_name} has no callable {factory_name!r}"
            )
        try:
            target = factory()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UnknownTargetError(
                f"TARGET {spec.text!r}: {factory_name}() raised {_describe(error)}"
            ) from None
    missing = [name for name in REQUIRED if not callable(getattr(target, name, None))]
    if missing:
        raise UnknownTargetError(
            f"TARGET {spec.text!r}: {factory_name}() returns a {type(target).__name__} without "
            f"{', '.join(missing)}; valid: an object with the methods {', '.join(REQUIRED)}"
        )
    return target


def _describe(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename not in LOADERS and "importlib" not in f.filename]
    place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{place}{' '.join(describe_exception(error).split())}"


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect descriptor 1 to stderr, so that output of C code goes there as well."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _command(
    spec: TargetSpec, imports: Sequence[str], *, offline: bool, report: Callable[[str], None]
) -> tuple[Sequence[str], Mapping[str, str] | None, Sequence[str]]:
    """Return a target's command and environment, and the modules that a fork server may import for
    it."""
    if spec.kind == "command":
        return spec.command, None, ()
    release = spec.release
    if spec.checkout is not None:
        package = spec.checkout.package
        if package is None:
            return *checkouts.command_of(spec.checkout, spec.folder), ()
        release = checkouts.release_of(package, spec.checkout, spec.folder)
    if release is not None:
        prepared = releases.prepare(release, spec.scheduler, offline=offline, report=report)
        more = {BEYOND_START_UP: "1"} if spec.beyond_start_up else {}
        more |= {OWN_CLASS: "1"} if spec.is_base else {}
        return prepared.command, prepared.env | more, prepared.imports
    # Call the user's factory in a separate process, because it may hang, exit or print.
    paths = [*imports, os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # With -P, Python does not import a schedproof folder or a random.py from the working directory.
    return [sys.executable, "-P", "-m", "schedproof", "serve", spec.text], env, ()
