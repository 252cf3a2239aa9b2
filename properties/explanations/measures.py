"""Measure how much a step uses of each limit in the configuration."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...model.observation import Step

VOLUME = "batch × tkv"
TOKENS = "tokens of the step"


class Measure(NamedTuple):
    """A limited quantity: its `value` and `limit`, in `unit`."""

    name: str
    value: int
    limit: int
    unit: str


def measures(step: Step | None, config: Mapping[str, Any]) -> list[Measure]:
    """Return how much the last step used of each limit that is configured and shown."""
    if step is None:
        return []
    used = []
    if "max_batch_tkv" in config and step.kind == "decode" and step.tkv is not None:
        volume = len(step.scheduled) * step.tkv
        used.append(Measure(VOLUME, volume, config["max_batch_tkv"], "tokens"))
    if "max_num_batched_tokens" in config:
        tokens = sum(step.scheduled.values())
        used.append(Measure(TOKENS, tokens, config["max_num_batched_tokens"], "tokens"))
    if config.get("max_num_seqs") and step.running is not None:
        used.append(Measure("running", len(step.running), config["max_num_seqs"], "requests"))
    if config.get("num_blocks") is not None and step.free_blocks is not None:
        held = config["num_blocks"] - step.free_blocks
        used.append(Measure("blocks held", held, config["num_blocks"], "blocks"))
    return used
