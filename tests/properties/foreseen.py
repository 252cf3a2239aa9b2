"""A target that begins with the steps that are foreseen, in this process."""

from collections.abc import Mapping
from typing import Any

from schedproof.model.target import ModelTarget, Reply

AHEAD = 16


class Foreseen(ModelTarget):
    """The model; `amid` lists what was asked of it instead of a step that it had begun with,
    `counts` how many steps it was told of at a time, and `vain` counts those nobody came for."""

    def __init__(self) -> None:
        super().__init__()
        self.amid: list[str] = []
        self.counts: list[int] = []
        self.vain = 0
        self._begun = 0

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self.vain += self._begun
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
    """Everybody leaves with the second token at the latest; those only whose prompt has so many
    tokens, where that is said."""

    def __init__(self, prompt: int | None = None) -> None:
        super().__init__()
        self._prompt = prompt

    def add(self, request: Mapping[str, Any]) -> Reply:
        tokens = sum(length for _, length in request["prompt"])
        if self._prompt in (None, tokens):
            few = min(request["max_tokens"], 2)
            length = min(request.get("output_len") or few, few)
            request = {**request, "max_tokens": few, "output_len": length}
        return super().add(request)


class ShowsNoTokens(Foreseen):
    """A target that does not show who got a token."""

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        reply = super().start(system, revision, config)
        return {**reply, "observes": [one for one in reply["observes"] if one != "emitted"]}

    def step(self) -> Reply:
        reply = super().step()
        return {"ok": True, "step": {**reply["step"], "emitted": None}}
