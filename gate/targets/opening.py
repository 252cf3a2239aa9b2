"""From the word on the command line to a target that can be asked."""

import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...model.faults import TargetNotStarted
from ...model.spyre.revision import DECIDES_AS, REVISIONS, SOUND, admitting_by
from ...model.target import ModelTarget, Target
from .. import checkouts, releases
from ..published import parse
from .child import MEMORY_LIMIT
from .jsonl import OPERATIONS
from .pipe import AHEAD, PipeTarget

COMPLAINT = "schedproof: "
VALID = (
    "valid: model, MODULE:FACTORY, 'cmd:COMMAND LINE', a release such as "
    f"sendnn-inference==2.1.2 or vllm==0.28.0, or a checkout: {', '.join(checkouts.CHECKOUTS)}"
)


class UnknownTargetError(ValueError):
    """A TARGET that is none of the four forms; `str()` is one line."""


class Opened(NamedTuple):
    """A target, and what it wrote to stderr where it has one."""

    target: Target
    stderr: Callable[[], str]


class Home(NamedTuple):
    """Where a target of the user's runs, and where else its module is looked for."""

    folder: Path | None
    imports: Sequence[str]


@contextmanager
def opened(
    spec: str,
    *,
    step_limit: float,
    offline: bool,
    report: Callable[[str], None],
    memory_limit: int = MEMORY_LIMIT,
    folder: Path | None = None,
    imports: Sequence[str] = (),
) -> Iterator[Opened]:
    """The target that `spec` names, its process ended on leaving.

    A target of the user's runs in `folder` (default: this process's own), and its module is also
    looked for in `imports`.

    Raises:
        UnknownTargetError, ReleaseError: `spec` names nothing, or a release that cannot be had;
            a factory is called, and so found wanting, only when the target is first started.
    """
    word, _, formula = spec.partition(":")
    if word == "model" and (not formula or admitting_by(SOUND, formula)):
        yield Opened(ModelTarget(formula or None), lambda: "")
        return
    home = Home(folder, imports)
    command, env = _command(spec, home, offline=offline, report=report)
    pipe = PipeTarget(
        command,
        env=env,
        folder=home.folder if is_factory(spec) or spec.startswith("cmd:") else None,
        step_limit=step_limit,
        memory_limit=memory_limit,
        ahead=1 if spec.startswith("cmd:") else AHEAD,
    )
    try:
        with pipe:
            yield Opened(pipe, lambda: pipe.stderr_tail)
    except TargetNotStarted as error:
        # `schedproof serve` has said it better: name the factory, not the process around it.
        words = error.stderr_tail.strip().splitlines()[-1:]
        if words and words[0].startswith(f"{COMPLAINT}TARGET "):
            raise UnknownTargetError(words[0].removeprefix(COMPLAINT)) from None
        raise


def is_factory(spec: str) -> bool:
    """The target is made by a factory of the user's, `MODULE:FACTORY`."""
    others = spec.partition(":")[0] in ("model", "cmd") or checkouts.named(spec) or parse(spec)
    return not others


def default_system(spec: str) -> str:
    """The system that a release or a checkout is one of; the first one for all other targets."""
    if (checkout := checkouts.named(spec)) is not None:
        return checkout[0].system
    release = parse(spec)
    return "spyre" if release is None else release.system


def default_revision(spec: str) -> str | None:
    """The revision that a release or a checkout is compared with, None for all other targets.

    Raises:
        InputError: there is no such checkout.
    """
    if (checkout := checkouts.named(spec)) is not None:
        return checkouts.revision_of(*checkout)
    release = parse(spec)
    if release is None:
        return None
    if release.system != "spyre":
        return "documented"
    revision = DECIDES_AS.get(release.version, release.version)
    return revision if revision in REVISIONS else "documented"


def make_target(spec: str) -> Any:
    """What the factory that `MODULE:FACTORY` names makes.

    Whatever the module prints goes to stderr: on stdout there are replies only.

    Raises:
        UnknownTargetError: no such module, no such name in it, or what it makes is no target.
    """
    module_name, factory_name = _module_and_factory(spec)
    sys.path.insert(0, "")
    with _stdout_to_stderr():
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise UnknownTargetError(
                f"TARGET {spec!r}: cannot import {module_name!r} ({_raised(error)})"
            ) from None
        factory = getattr(module, factory_name, None)
        if not callable(factory):
            raise UnknownTargetError(
                f"TARGET {spec!r}: {module_name} has no callable {factory_name!r}"
            )
        try:
            target = factory()
        except (Exception, SystemExit) as error:
            raise UnknownTargetError(
                f"TARGET {spec!r}: {factory_name}() raised {_raised(error)}"
            ) from None
    missing = [name for name in OPERATIONS if not callable(getattr(target, name, None))]
    if missing:
        raise UnknownTargetError(
            f"TARGET {spec!r}: {factory_name}() gives a {type(target).__name__} without "
            f"{', '.join(missing)}; valid: an object with the methods {', '.join(OPERATIONS)}"
        )
    return target


def _raised(error: BaseException) -> str:
    """An exception of the user's code in one line, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
    place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Descriptor 1 as a copy of 2, for what prints below Python too."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _module_and_factory(spec: str) -> tuple[str, str]:
    module, _, factory = spec.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), factory]):
        raise UnknownTargetError(f"TARGET {spec!r} is not understood; {VALID}")
    return module, factory


def _command(
    spec: str, home: Home, *, offline: bool, report: Callable[[str], None]
) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """What starts the target, and its environment where that is not ours."""
    if spec.startswith("cmd:"):
        try:
            command = shlex.split(spec.removeprefix("cmd:"))
        except ValueError as error:
            raise UnknownTargetError(f"TARGET {spec!r}: {error}; {VALID}") from None
        if not command:
            raise UnknownTargetError(f"TARGET {spec!r}: no command after cmd:; {VALID}")
        return command, None
    if (checkout := checkouts.named(spec)) is not None:
        return checkouts.command_of(*checkout)
    release = parse(spec)
    if release is not None:
        prepared = releases.prepare(release, offline=offline, report=report)
        return prepared.command, prepared.env
    _module_and_factory(spec)
    # A target of the user's runs in a process of its own: it may hang, exit or print.
    paths = [*home.imports, os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return [sys.executable, "-m", "schedproof", "serve", spec], env
