"""From the word on the command line to a target that can be asked."""

import importlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...model.target import ModelTarget, Target
from .. import releases
from .pipe import PipeTarget

VALID = (
    "valid: model, MODULE:FACTORY, 'cmd:COMMAND LINE', or a release such as sendnn-inference==2.1.2"
)


class UnknownTargetError(ValueError):
    """A TARGET that is none of the four forms; `str()` is one line."""


class Opened(NamedTuple):
    """A target, and what it wrote to stderr where it has one."""

    target: Target
    stderr: Callable[[], str]


@contextmanager
def opened(
    spec: str, *, step_limit: float, offline: bool, report: Callable[[str], None]
) -> Iterator[Opened]:
    """The target that `spec` names, its process ended on leaving.

    Raises:
        UnknownTargetError, ReleaseError: `spec` names nothing, or a release that cannot be had.
    """
    if spec == "model":
        yield Opened(ModelTarget(), lambda: "")
        return
    pipe = _pipe(spec, step_limit=step_limit, offline=offline, report=report)
    with pipe:
        yield Opened(pipe, lambda: pipe.stderr_tail)


def default_revision(spec: str) -> str | None:
    """The revision that a release is compared with in lockstep, None for all other targets."""
    release = releases.parse(spec)
    if release is None:
        return None
    return "2.1.2" if release.version in ("2.1.1", "2.1.2") else "documented"


def load_factory(spec: str) -> Callable[[], Any]:
    """The target factory that `MODULE:FACTORY` names.

    Raises:
        UnknownTargetError: no such module, no such name in it, or it cannot be called.
    """
    module_name, _, name = spec.partition(":")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UnknownTargetError(
            f"TARGET {spec!r}: cannot import {module_name!r} ({error})"
        ) from None
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UnknownTargetError(f"TARGET {spec!r}: {module_name} has no callable {name!r}")
    return factory  # type: ignore[no-any-return]


def _pipe(
    spec: str, *, step_limit: float, offline: bool, report: Callable[[str], None]
) -> PipeTarget:
    if spec.startswith("cmd:"):
        try:
            command = shlex.split(spec.removeprefix("cmd:"))
        except ValueError as error:
            raise UnknownTargetError(f"TARGET {spec!r}: {error}") from None
        if not command:
            raise UnknownTargetError(f"TARGET {spec!r}: no command after cmd:; {VALID}")
        return PipeTarget(command, step_limit=step_limit)
    release = releases.parse(spec)
    if release is not None:
        prepared = releases.prepare(release, offline=offline, report=report)
        return PipeTarget(prepared.command, env=prepared.env, step_limit=step_limit)
    module, separator, factory = spec.partition(":")
    if not separator or not all(part.isidentifier() for part in module.split(".")) or not factory:
        raise UnknownTargetError(f"TARGET {spec!r} is not understood; {VALID}")
    # A target of the user's runs in a process of its own: it may hang, exit or print.
    return PipeTarget([sys.executable, "-m", "schedproof", "serve", spec], step_limit=step_limit)
