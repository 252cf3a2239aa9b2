"""The ids by which a target knows the requests of a run, if ids are reused. The scenario, the
history and the model beside the target have a separate name for each request.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ...model.observation import renamed
from ...model.scenario import Request


class Names:
    """The target's ids of all requests so far, and the newest request with each id."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # by request, its id at the target
        self._newest: dict[str, str] = {}  # by id at the target, the newest request that has it

    def chosen(self, request: Request, unfinished: Collection[str]) -> dict[str, str]:
        """Return the fields in which a request differs when it is sent to the target: its id,
        unless an unfinished request has that id; and the stream of its output, which has a name of
        its own."""
        taken = {self.of(name) for name in unfinished}
        name = request.sent_as or request.id
        if name in taken:
            name = request.id
        while name in taken:
            name += "'"
        return {} if name == request.id else {"id": name, "stream": request.id}

    def accept(self, request: str, sent: str) -> None:
        self._ids[request] = sent
        self._newest[sent] = request

    def of(self, request: str) -> str:
        return self._ids.get(request, request)

    def restored(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step with the scenario's names: an id stands for the newest request that has
        it."""
        return renamed(step, self._newest)
