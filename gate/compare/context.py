"""One comparison of two targets: which targets, how hard, and what came out so far."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...model.scenario import Scenario
from ...properties.checking.difference import HANG, Difference
from ...properties.checking.differential_target import Both, Pair
from ...properties.rules.registry import NEVER_CRASHES, NEVER_HANGS
from ..judging.context import BreakOff
from ..judging.events import Notice, Progress
from ..judging.profiles import PROFILES, Profile
from ..judging.verdict import EngineRun
from ..targets.target_spec import TargetSpec
from .verdict import DiffFinding

# Both crash or hang alike: the run is over, and that is no difference.
BOTH_FAILED = frozenset({NEVER_CRASHES, NEVER_HANGS})


class DiffFound(NamedTuple):
    """A difference, written down; `recent` are the steps before it, on both."""

    finding: DiffFinding
    scenario: Scenario
    difference: Difference
    recent: Sequence[Both]
    earlier: Difference | None = None


class Opening(NamedTuple):
    """How a target of a comparison is opened, and whose terms it understands; seconds a step."""

    spec: TargetSpec
    system: str
    revision: str
    step_limit: float


@dataclass
class Diff:
    """One comparison: which targets, how hard, and what came out so far.

    Attributes:
        specs: the targets as the command line names them.
        fixed: values that every configuration has.
        openings: of each target, for processes of their own.
        jobs: processes that search scales.
        found: by the shape of the difference.
    """

    pair: Pair
    specs: tuple[str, str]
    system: str
    revision: str
    fixed: Mapping[str, Any]
    profile_name: str
    seed: int
    max_differences: int
    out: Path
    report: Callable[[Notice | Progress | DiffFound], None]
    openings: tuple[Opening, ...] = ()
    jobs: int = 1
    engines: list[EngineRun] = field(default_factory=list)
    found: dict[str, DiffFinding] = field(default_factory=dict)
    interrupted: bool = False
    fault: BreakOff | None = None

    def stderr(self) -> str:
        return "".join(side.stderr() for side in self.pair.sides)

    @property
    def profile(self) -> Profile:
        return PROFILES[self.profile_name]

    @property
    def enough(self) -> bool:
        """All the differences that were asked for are found."""
        return len(self.found) >= self.max_differences

    @property
    def hangs(self) -> bool:
        """One of the two targets was found to hang: that costs a time limit each time."""
        return any(one.kind == HANG for one in self.found.values())

    @property
    def known(self) -> frozenset[str]:
        """What ends a run without being a new difference."""
        return BOTH_FAILED | self.found.keys()


def book(
    diff: Diff, engine: str, scale: str, totals: Counter[str], began: float, complete: bool
) -> None:
    diff.engines.append(EngineRun.of(engine, scale, totals, time.monotonic() - began, complete))
