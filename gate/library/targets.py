"""Targets from Python: a name as on the command line, or an object with the five methods."""

from collections.abc import Iterator
from contextlib import contextmanager

from ...model.target import Target
from ..targets.factory import opened
from ..targets.limits import MEMORY_LIMIT, STEP_LIMIT
from ..targets.target_spec import TargetSpec, parse_target

AnyTarget = str | TargetSpec | Target


@contextmanager
def open_target(
    target: AnyTarget,
    *,
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    offline: bool = False,
) -> Iterator[Target]:
    """The target, ready for `start`; a process that was started for it ends on leaving.

    Args:
        target: as on the command line ("model", "my_pkg.sched:make_target", "vllm==0.28.0"), or an
            object with the methods start, add, abort, step and stop.
        step_limit: seconds that the process of a target may take for a step.
        memory_limit: MiB that it may use.
        offline: install nothing.

    Raises:
        UnknownTargetError, ReleaseError, InputError: there is no such target.
    """
    if not isinstance(target, str | TargetSpec):
        yield target
        return
    spec = parse_target(target) if isinstance(target, str) else target
    with opened(spec, step_limit=step_limit, memory_limit=memory_limit, offline=offline) as there:
        yield there.target


def spec_of(target: AnyTarget) -> TargetSpec:
    """The specification of a target; for an object, one that names its class."""
    if isinstance(target, TargetSpec):
        return target
    if isinstance(target, str):
        return parse_target(target)
    kind = type(target)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return TargetSpec(name, "factory", module=kind.__module__, factory=kind.__qualname__)
