"""Describe the requests and queues of a run after a step."""

from ....properties.history.run_history import RunHistory
from ...console.output import one_line

SHOWN_BLOCKS = 8
QUEUES = ("waiting", "running", "prefilling", "paused", "parked")


def queues(book: RunHistory) -> dict[str, list[str]]:
    """Return the requests that are waiting, running, prefilling, paused or parked, in queue order.

    The queues are those after the last step. Requests that have ended since then are removed, and
    new arrivals are appended.
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
    """Describe a request's progress: the tokens computed and generated, and the blocks held."""
    account, last = book.requests[request], book.last
    parts = [f"computed {account.computed}", f"generated {account.emitted}"]
    if account.prefix_hit:
        parts.append(f"{account.prefix_hit} of them from the prefix cache")
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
