"""What happens during a gate, for whoever prints it."""

from collections.abc import Callable
from typing import NamedTuple

from ..model.scenario import Scenario
from ..properties.session import Session
from .verdict import Finding


class Notice(NamedTuple):
    """Something worth a line."""

    text: str


class Progress(NamedTuple):
    """How far an engine is; `of` is None where it is not known."""

    engine: str
    runs: int
    of: int | None
    steps: int


class Found(NamedTuple):
    """A counterexample, shrunk, written down, and replayed in `session`.

    `stderr` is what the target wrote there in that run.
    """

    finding: Finding
    scenario: Scenario
    session: Session
    stderr: str = ""


Event = Notice | Progress | Found
Report = Callable[[Event], None]
