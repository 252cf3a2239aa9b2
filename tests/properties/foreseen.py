"""A target that begins with the steps that are foreseen, in this process."""

from collections.abc import Mapping
from typing import Any

from schedproof.model.target import ModelTarget, Reply

AHEAD = 16


class Foreseen(ModelTarget):
    """The model; `amid` lists what was asked of it instead of a step that it had begun with, and
    `counts` how many steps it was told of at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.amid: list[str] = []
        self.counts: list[int] = []
        self._begun = 0

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self._begun = 0
        return super().start(system, revision, config)

    def add(self, request: Mapping[str, Any]) -> Reply:
        self.amid += ["add"] * bool(self._begun)
        return super().add(request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        self.amid += ["abort"] * bool(self._begun)
        return super().abort(id, inside)

    def ask_ahead(self, steps: int) -> int:
        self.amid += ["ask_ahead"] * bool(self._begun)
        self.counts.append(steps)
        self._begun = max(1, min(steps, AHEAD))
        return self._begun

    def step(self) -> Reply:
        self._begun = max(0, self._begun - 1)
        return super().step()


class EndsTooSoon(Foreseen):
    """Everybody leaves with the second token at the latest."""

    def add(self, request: Mapping[str, Any]) -> Reply:
        few = {"max_tokens": min(request["max_tokens"], 2), "output_len": None}
        few["output_len"] = min(request.get("output_len") or few["max_tokens"], few["max_tokens"])
        return super().add({**request, **few})
