"""The events of a gate: the one stream that every report is made from."""

from collections.abc import Callable

import msgspec

from ...model.scenario import Scenario
from ...properties.checking.session import Excerpt
from ...properties.explanations.cause import Cause
from .verdict import Finding, TargetInfo, Verdict

FORMAT = "schedproof/events@1"


class Began(msgspec.Struct, frozen=True, tag="began", tag_field="event"):
    """The start of a gate: the target, the revision of the rules, the profile, the scales, and the
    base if there is one."""

    target: TargetInfo
    system: str
    revision: str
    profile: str
    seed: int
    scales: tuple[str, ...]
    base: TargetInfo | None = None
    format: str = FORMAT


class Notice(msgspec.Struct, frozen=True, tag="notice", tag_field="event"):
    """A message for the user."""

    text: str


class Progress(msgspec.Struct, frozen=True, tag="progress", tag_field="event"):
    """The runs and steps of an engine so far; `of` is the number of planned runs, 0 if unknown.
    While the engine shrinks a finding (`shrinking`), its steps are counted, but no runs."""

    engine: str
    runs: int
    of: int
    steps: int
    shrinking: bool = False


class Found(msgspec.Struct, frozen=True):
    """A counterexample that was shrunk, written to a file and replayed. `stderr` is the target's
    output in that run, and `cause` the cause of the failure, as far as that run shows it."""

    finding: Finding
    scenario: Scenario
    run: Excerpt
    replay: str
    stderr: str = ""
    cause: Cause | None = None


class Concluded(msgspec.Struct, frozen=True, tag="verdict", tag_field="event"):
    """The last event of a gate, with its verdict."""

    verdict: Verdict


Event = Began | Notice | Progress | Found | Concluded
Report = Callable[[Event], None]
