"""Runs by hand on targets of the tests' own."""

from typing import Any

from schedproof.gate.web.step.run import ByHand, StepSetup
from schedproof.model.faults import TargetHung
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget, Reply
from schedproof.spec.catalogue import load

SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 40}


SMALLEST = {
    "block_size": 2,
    "chunk_size": 4,
    "max_num_seqs": 3,
    "max_model_len": 16,
    "max_batch_tkv": 6,
}


class Crashes(ModelTarget):
    """The model, whose step number `at` raises; or hangs, or gives no observation."""

    how = "crash"
    words = "boom"
    at = 1
    count = 0

    def start(self, *args: Any, **words: Any) -> Reply:
        self.count = 0
        return super().start(*args, **words)

    def step(self) -> Reply:
        self.count += 1
        if self.count <= self.at:
            return super().step()
        if self.how == "hang":
            raise TargetHung("step", 1.0)
        if self.how == "nonsense":
            return {"ok": True, "step": 7}
        raise RuntimeError(self.words)


def by_hand(
    target: Any = None, system: str = "spyre", revision: str = "documented", **config: Any
) -> ByHand:
    values = full_config(system, revision, (SMALL if system == "spyre" else {}) | config)
    rules = [rule for rule in load(system) if rule.id != "ALL-R07"]
    return ByHand(StepSetup(target or ModelTarget(), system, revision, values, rules, lambda: ""))


def broken_run(**config: Any) -> ByHand:
    """Two requests that the page's own projection lets beyond its limit (SPY-R07)."""
    run = by_hand(**(SMALLEST | config))
    run.arrive(2, 3)
    run.step()
    run.step()
    run.arrive(2, 2)
    run.step()
    run.step()
    return run
