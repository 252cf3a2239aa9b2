"""What a trace says that happened, one event for each request and its reply.

`line` is that of the request in the file, from 1.
"""

from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.replies import Started
from ...model.scenario import Request


class Begun(NamedTuple):
    """A run: the target has taken a configuration."""

    line: int
    system: str
    revision: str
    config: dict[str, Any]
    started: Started


class NotBegun(NamedTuple):
    """The target did not take a configuration."""

    line: int
    why: str


class Added(NamedTuple):
    """A request arrived; `open_ended`: how much it generates is not known yet."""

    line: int
    request: Request
    open_ended: bool


class Rejected(NamedTuple):
    """The target refused a request at the door, or an abort that it lacks, in these words."""

    line: int
    operation: str
    request: Request | None = None
    words: str = ""


class Aborted(NamedTuple):
    """A client gave a request up, and the target took it."""

    line: int
    id: str
    inside: bool


class Controlled(NamedTuple):
    """An operator reset or paused the scheduler, which did it or not."""

    line: int
    kind: str
    done: bool


class Stepped(NamedTuple):
    """A step and its observation."""

    line: int
    step: Step


class Crashed(NamedTuple):
    """The scheduler raised."""

    line: int
    message: str


class Stopped(NamedTuple):
    """The run is over."""

    line: int


class Cut(NamedTuple):
    """Where the record breaks off, and how."""

    line: int
    why: str


Event = (
    Begun | NotBegun | Added | Rejected | Aborted | Controlled | Stepped | Crashed | Stopped | Cut
)
