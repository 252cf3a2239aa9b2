"""How near runs come to the limits of their configuration: a target that is watched."""

from collections.abc import Mapping
from typing import Any

from ...model.faults import TargetFault
from ...model.replies import read_step
from ...model.scenario import Request, Scenario
from ...model.target import Reply, Target
from ...properties.search.boundary_cases import USES
from .results import NearMiss

NO_REQUEST = Request(id="none", arrival=0, prompt=(("none", 1),), max_tokens=1)


class Watched:
    """A target that passes everything on, and notes what its runs leave of each limit.

    `near` has the nearest miss of each limit, by its configuration key. A run that uses a limit
    beyond its value has broken a rule, which reports it.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._observes: frozenset[str] = frozenset()
        self._run = Scenario(system="", requests=(NO_REQUEST,))
        self.near: dict[str, NearMiss] = {}

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start a run of the target, with no margin measured yet."""
        reply = self._target.start(system, revision, config)
        self._observes = frozenset(reply.get("observes", ()))
        self._run = Scenario(system=system, config=dict(config), requests=(NO_REQUEST,))
        return reply

    def add(self, request: Mapping[str, Any]) -> Reply:
        """A request arrives."""
        reply = self._target.add(request)
        if reply.get("ok"):
            one = Request(
                id=request["id"],
                arrival=0,
                prompt=tuple((stream, length) for stream, length in request["prompt"]),
                max_tokens=request["max_tokens"],
            )
            self._run = Scenario(
                system=self._run.system,
                config=self._run.config,
                requests=(*self._run.requests, one),
            )
        return reply

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """A client gives up."""
        return self._target.abort(id, True) if inside else self._target.abort(id)

    def step(self) -> Reply:
        """One step, measured against every limit."""
        reply = self._target.step()
        try:
            step = read_step(reply, self._observes)
        except TargetFault:
            return reply  # the judge reports what is wrong with it
        for key, use in USES.items():
            limit = self._run.config.get(key)
            if limit and (used := use(self._run, step)):
                self._note(key, limit - used)
        return reply

    def stop(self) -> Reply:
        """The run is over."""
        return self._target.stop()

    def _note(self, key: str, left: int) -> None:
        if left >= 0 and (key not in self.near or left < self.near[key].left):
            self.near[key] = NearMiss(left=left, config=self._run.config)
