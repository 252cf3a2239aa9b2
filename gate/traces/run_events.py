"""The events of a trace. Each consists of a request of the protocol and its reply.

`line` is the line number of the request in the file, counted from 1.
"""

from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.replies import Started
from ...model.scenario import Request


class Begun(NamedTuple):
    """A run begins: the target accepted its configuration."""

    line: int
    system: str
    revision: str
    config: dict[str, Any]
    started: Started


class NotBegun(NamedTuple):
    """No run begins, because the target refused the configuration or crashed. After a crash,
    `crashed` contains the system, the revision and the message."""

    line: int
    why: str
    crashed: tuple[str, str, str] | None = None


class Added(NamedTuple):
    """A request arrived. `open_ended` means that its output length is not known yet."""

    line: int
    request: Request
    open_ended: bool


class Rejected(NamedTuple):
    """The target refused a request, or does not support an abort. `words` is the target's
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
    """An operator told the scheduler to reset or pause. `done` says whether it did."""

    line: int
    kind: str
    done: bool


class Stepped(NamedTuple):
    """A step and its observation."""

    line: int
    step: Step


class Crashed(NamedTuple):
    """The scheduler raised an exception."""

    line: int
    message: str


class Stopped(NamedTuple):
    """The run has ended."""

    line: int


class Cut(NamedTuple):
    """The record ends too early here. `why` gives the reason."""

    line: int
    why: str


Event = (
    Begun | NotBegun | Added | Rejected | Aborted | Controlled | Stepped | Crashed | Stopped | Cut
)
