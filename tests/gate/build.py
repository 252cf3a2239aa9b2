"""Targets in this process, made from the model of one revision and bent where a test says."""

from collections.abc import Mapping
from typing import Any

from schedproof.gate.judging.verdict import RuleVerdict, Verdict
from schedproof.model.target import ModelTarget, Reply


class Toy(ModelTarget):
    """The sound model, or that of `decides_as`, bent where a subclass says.

    `version` is what it says of itself where that is not the revision; `starts` counts.
    """

    decides_as = "sound"
    version: str | None = None
    starts = 0
    config: Mapping[str, Any]

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self.starts += 1
        self.config = config
        reply = super().start(system, self.decides_as, config)
        return reply | {"version": self.version} if self.version else reply

    def step(self) -> Reply:
        reply = super().step()
        self.bend(reply["step"])
        return reply

    def bend(self, step: dict[str, Any]) -> None:
        pass


class Release(Toy):
    """Release 2.5.2, every decision of it."""

    decides_as = "2.5.2"


class PlansItsPool(ModelTarget):
    """Starts only with a pool that holds a request of max_model_len."""

    def start(self, system, revision, config):
        pool = (config["num_blocks"] or 10**6) * config["block_size"]
        if pool < config["max_model_len"]:
            return {"ok": False, "error": "config", "message": "$.config.num_blocks: too few"}
        return super().start(system, revision, config)


class Ghosts(Toy):
    """No request waits but a stranger (against ALL-R03), once `crowd` requests run."""

    crowd = 2

    def bend(self, step: dict[str, Any]) -> None:
        if len(step["running"]) >= self.crowd:
            step["waiting"] = ["ghost"]


def entry(verdict: Verdict, rule: str) -> RuleVerdict:
    return next(judged for judged in verdict.rules if judged.id == rule)
