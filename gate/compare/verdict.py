"""The result of a comparison of two targets as data: `schedproof/diff@1`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from ..judging.verdict import EngineRun, TargetInfo

FORMAT = "schedproof/diff@1"


class DiffFinding(msgspec.Struct, frozen=True):
    """One difference, in the smallest scenario found. Times are in seconds.

    Attributes:
        kind, shape: its class, and what all scenarios that show it have in common.
        scenario, scenario_b: files; the second where B needs it in its own terms.
        step: the first step that differs, from 0.
        fields: every field that differs, as A and as B show it.
        words: what that means, a sentence each.
        seen: in how many runs it occurred, where all runs were followed to their end.
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
    """What was compared: steps, fields with the steps in which both showed them, events."""

    steps: int
    fields: dict[str, int]
    events: dict[str, int]
    both_failed: int


class DiffVerdict(msgspec.Struct, frozen=True):
    """Everything that a comparison found out; `fault` is why it broke off, where it did.

    `fixed` are the values that every configuration had.
    """

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
    """1 where there is a difference; 3 where nothing was compared, or not everything."""
    if differences:
        return BROKEN
    return CONFORMS if complete and steps else INCONCLUSIVE
