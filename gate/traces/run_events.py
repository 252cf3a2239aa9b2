"""The events of a trace: one for each request of the protocol and its reply.

`line` is the line of the request in the file, from 1.
"""

from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.replies import Started
from ...model.scenario import Request


class Begun(NamedTuple):
    """The beginning of a run: the target accepted a configuration."""

    line: int
    system: str
    revision: str
    config: dict[str, Any]
    started: Started


class NotBegun(NamedTuple):
    """The target did not accept a configuration."""

    line: int
    why: str


class Added(NamedTuple):
    """A request arrived; `open_ended`: its output length is not known yet."""

    line: int
    request: Request
    open_ended: bool


class Rejected(NamedTuple):
    """The target refused a request, or an abort that it does not support; `words` is its
    message."""

    line: int
    operation: str
    request: Request | None = None
    words: str = ""


class Aborted(NamedTuple):
    """A client aborted a request, and the target accepted the abort."""

    line: int
    id: str
    inside: bool


class Controlled(NamedTuple):
    """A reset or pause of the scheduler by an operator; `done` says whether the scheduler did
    it."""

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
    """The run has ended."""

    line: int


class Cut(NamedTuple):
    """The record breaks off here, for this reason."""

    line: int
    why: str


Event = (
    Begun | NotBegun | Added | Rejected | Aborted | Controlled | Stepped | Crashed | Stopped | Cut
)
