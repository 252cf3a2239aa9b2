"""Whole targets with a fault, around the model of any system."""

from typing import Any

from schedproof.model.faults import TargetHung
from schedproof.model.target import ModelTarget, Reply


class Release(ModelTarget):
    """A scheduler that the model beside it is compared with."""

    def start(self, system: str, revision: str, config: Any) -> Reply:
        return {**super().start(system, revision, config), "name": system}


class TakesForEver(ModelTarget):
    """A scheduler that does not answer when three requests run."""

    def step(self) -> Reply:
        reply = super().step()
        if len(reply["step"]["running"]) > 2:
            raise TargetHung("step", 10.0)
        return reply


class ShowsLittle(ModelTarget):
    """A target that shows no more than what is scheduled and what has finished."""

    SHOWN = ("kind", "scheduled", "waiting", "running", "finished")

    def start(self, system: str, revision: str, config: Any) -> Reply:
        return super().start(system, revision, config) | {"observes": list(self.SHOWN)}

    def step(self) -> Reply:
        step = super().step()["step"]
        return {"ok": True, "step": {name: step[name] for name in self.SHOWN}}


class ShowsNoProgress(ShowsLittle):
    """A scheduler that, once two requests wait, schedules its batch again and again for nothing."""

    def step(self) -> Reply:
        before = self._state
        reply = super().step()
        step = reply["step"]
        if step["kind"] == "decode" and len(before.waiting) > 1:
            self._state = before
            step["scheduled"] = dict.fromkeys(step["scheduled"], 0)
            step["finished"] = {}
            step["waiting"] = [request.id for request in before.waiting]
            step["running"] = [request.id for request in before.running]
        return reply


class RefusesLongPrompts(ModelTarget):
    """A scheduler that refuses every prompt of more than a block when it arrives."""

    def start(self, system: str, revision: str, config: Any) -> Reply:
        self._block = config["block_size"]
        return super().start(system, revision, config)

    def add(self, request: Any) -> Reply:
        length = sum(tokens for _, tokens in request["prompt"])
        if length > self._block:
            message = f"a prompt of {length} tokens is too long"
            return {"ok": False, "error": "rejected", "message": message}
        return super().add(request)


class ShowsNothingComputed(ModelTarget):
    """A target that promises what is computed, and shows it of no request."""

    def step(self) -> Reply:
        reply = super().step()
        reply["step"] |= {"computed": {}}
        return reply


class AcceptsEverything(ModelTarget):
    """A scheduler that accepts requests which can never run; those behind them wait."""

    def start(self, system: str, revision: str, config: Any) -> Reply:
        reply = super().start(system, revision, config)
        if reply["ok"]:
            self._model = _RefusesNothing(self._model)
        return reply


class _RefusesNothing:
    def __init__(self, model: Any) -> None:
        self._model = model

    def refusal(self, request: Any) -> None:
        """Every request is accepted."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
