"""The ids by which a target knows the requests of a run, if ids are used again.

A scenario has its own name for each request, and so have the history and the model beside.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ...model.observation import renamed
from ...model.scenario import Request


class Names:
    """The ids at the target of all requests so far, and the newest request of each id."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # at the target, by request
        self._newest: dict[str, str] = {}  # request, by its id at the target

    def chosen(self, request: Request, unfinished: Collection[str]) -> dict[str, str]:
        """Return what differs in a request as the target gets it: its id, unless another request
        that is not over has it; and the stream of its output, which never has the name twice."""
        taken = {self.of(name) for name in unfinished}
        name = request.sent_as or request.id
        if name in taken:
            name = request.id
        while name in taken:
            name += "'"
        return {} if name == request.id else {"id": name, "stream": request.id}

    def accept(self, request: str, sent: str) -> None:
        """Record that the target knows a request by this id now."""
        self._ids[request] = sent
        self._newest[sent] = request

    def of(self, request: str) -> str:
        """Return the id by which the target knows a request."""
        return self._ids.get(request, request)

    def restored(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step with the names of the scenario: an id means the newest request with it."""
        return renamed(step, self._newest)
