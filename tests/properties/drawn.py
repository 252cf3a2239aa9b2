"""Helpers for the tests of all strategies, and histories for requests that come late."""

from typing import Any

from hypothesis import Phase, find, settings

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.properties.history.run_history import RunHistory

SCALES = ("small", "short", "tight")


def find_example(strategy: Any, condition: Any) -> Any:
    """An example with the condition; `find` raises where there is none."""
    unshrunk = settings(max_examples=2000, database=None, phases=(Phase.generate,))
    return find(strategy, condition, settings=unshrunk)


def request_of(name: str, content: Any, shape: Any, **changes: Any) -> Request:
    """The request that a strategy has drawn."""
    drawn = {"output_len": shape.output_len, "priority": shape.priority}
    drawn |= {"id": name, "arrival": 0, "prompt": content, "max_tokens": shape.max_tokens}
    return Request(**drawn | changes)


def history(
    system: str,
    config: dict[str, Any],
    computed: list[int],
    free: int | None = None,
    revision: str = "documented",
    **changes: Any,
) -> RunHistory:
    """Requests that have computed so many tokens and decode, in a step with so many free blocks."""
    book = RunHistory(config, revision, system)
    names = [f"r{index}" for index in range(len(computed))]
    for name, tokens in zip(names, computed, strict=True):
        given = {"prompt": ((name, tokens),), "max_tokens": 5} | changes
        book.accept(Request(id=name, arrival=0, **given))
    if system == "spyre":  # it prefills one request a step
        for name, tokens in zip(names, computed, strict=True):
            book.observe(Step(kind="prefill", scheduled={name: tokens}))
        return book
    scheduled = dict(zip(names, computed, strict=True))
    kind = "prefill" if scheduled else "idle"
    seen = Step(kind=kind, scheduled=scheduled, emitted={}, finished={}, free_blocks=free)
    book.observe(seen)
    return book
