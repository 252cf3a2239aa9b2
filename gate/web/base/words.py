"""Describe the state of a run in domain words: its requests, queues and limits after a step."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....model.observation import Step
from ....properties.history.run_history import RunHistory
from ...console.output import one_line

VOLUME = "batch × tkv"
SHOWN_BLOCKS = 8
QUEUES = ("waiting", "running", "prefilling", "paused", "parked")


class Measure(NamedTuple):
    """A quantity with a limit: `value` of `limit`, in `unit`."""

    name: str
    value: int
    limit: int
    unit: str


def measures(step: Step | None, config: Mapping[str, Any]) -> list[Measure]:
    """Return how much of each limit the last step used, for limits of the configuration that the
    step shows."""
    if step is None:
        return []
    found = []
    if "max_batch_tkv" in config and step.kind == "decode" and step.tkv is not None:
        volume = len(step.scheduled) * step.tkv
        found.append(Measure(VOLUME, volume, config["max_batch_tkv"], "tokens"))
    if "max_num_batched_tokens" in config:
        tokens = sum(step.scheduled.values())
        found.append(
            Measure("tokens of the step", tokens, config["max_num_batched_tokens"], "tokens")
        )
    if config.get("max_num_seqs") and step.running is not None:
        found.append(Measure("running", len(step.running), config["max_num_seqs"], "requests"))
    if config.get("num_blocks") is not None and step.free_blocks is not None:
        held = config["num_blocks"] - step.free_blocks
        found.append(Measure("blocks held", held, config["num_blocks"], "blocks"))
    return found


def queues(book: RunHistory) -> dict[str, list[str]]:
    """Return the requests that wait, run, prefill, are paused or parked now, in queue order.

    These are the queues of the last step, without requests that have left since; new arrivals are
    added at the end.
    """
    last = book.last
    shown = {
        name: [request for request in getattr(last, name) if request not in book.aborts_to_report]
        for name in QUEUES
        if last is not None and getattr(last, name) is not None
    }
    listed = {member for members in shown.values() for member in members}
    arrived = [request for request in book.live if request not in listed]
    shown["waiting"] = [*shown.get("waiting", []), *arrived]
    return {name: shown[name] for name in QUEUES if name in shown}


def progress(book: RunHistory, request: str) -> str:
    """Describe a request's progress: tokens computed and generated, blocks held."""
    account, last = book.requests[request], book.last
    parts = [f"computed {account.computed}", f"generated {account.emitted}"]
    if account.prefix_hit:
        parts.append(f"of these {account.prefix_hit} from the prefix cache")
    if account.preemptions:
        parts.append(f"preempted {account.preemptions} times")
    if last is not None:
        if request in (last.left_pad_blocks or {}):
            padding = (last.left_pad_blocks or {})[request]
            parts.append(f"left padding {padding} block{'s' * (padding != 1)}")
        if request in (last.blocks or {}):
            parts.append(f"blocks {_numbers((last.blocks or {})[request])}")
    if account.ended:
        parts.append(f"left: {account.ended}")
    return one_line(", ".join(parts))


def _numbers(blocks: tuple[int, ...]) -> str:
    words = [str(block) for block in blocks]
    if len(words) > SHOWN_BLOCKS:
        words = [*words[: SHOWN_BLOCKS - 1], "…", words[-1], f"({len(blocks)} of them)"]
    return " ".join(words) or "none"
