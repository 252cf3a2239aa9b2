"""The result of a comparison of two targets as data: `schedproof/diff@1`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from ..judging.verdict import EngineRun, TargetInfo

FORMAT = "schedproof/diff@1"


class DiffFinding(msgspec.Struct, frozen=True):
    """A difference, in the smallest scenario found. Times are in seconds.

    `shape` is the same in every scenario that shows the difference. `scenario_b` is set if B
    belongs to another system. `fields` has every field that differs, as A and as B show it. `seen`
    counts the runs that showed it, if all runs were followed to their end.
    """

    kind: str
    shape: str
    engine: str
    scale: str
    scenario: str
    step: int
    message: str
    requests: int
    fields: dict[str, dict[str, Any]]
    words: tuple[str, ...]
    scenario_b: str | None = None
    found_after: float = 0.0
    shrunk_in: float = 0.0
    seen: int | None = None


class Compared(msgspec.Struct, frozen=True):
    """How much was compared: the steps, the steps in which both targets showed a field, the events
    by kind, and the runs in which both targets crashed or hung."""

    steps: int
    fields: dict[str, int]
    events: dict[str, int]
    both_failed: int


class DiffVerdict(msgspec.Struct, frozen=True):
    """The result of a comparison. `fixed` holds the values that every configuration had; `fault`
    says why the comparison ended early."""

    a: TargetInfo
    b: TargetInfo
    system: str
    revision: str
    fixed: Mapping[str, Any]
    profile: str
    seed: int
    engines: tuple[EngineRun, ...]
    differences: tuple[DiffFinding, ...]
    compared: Compared
    exit_code: int
    baseline: str | None = None
    interrupted: bool = False
    fault: str | None = None
    format: str = FORMAT


def exit_code(differences: int, steps: int, complete: bool) -> int:
    """Return 1 if there is a difference, 3 if the comparison is empty or incomplete, else 0."""
    if differences:
        return BROKEN
    return CONFORMS if complete and steps else INCONCLUSIVE
