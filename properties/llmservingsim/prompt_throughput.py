"""How a run counts the tokens of a prompt that it found in the cache (LSS-R23).

The documentation page does not say whether these tokens count with the first chunk of the prompt or
with the last one.
"""

from collections.abc import Callable
from typing import Literal

from ...model.observation import Step
from ..vllm.history.run import VllmRun, state_of

Chunk = Literal["first", "last"]


def chunks_after(history: VllmRun, step: Step) -> frozenset[Chunk]:
    """Return the chunks with which this run may count hits, judging by its steps so far. Ignore the
    step if it fits neither chunk."""
    possible = state_of(history).hits_count_with
    fitting = {
        chunk for chunk in possible if counted(history, step, chunk) == step.prompt_throughput
    }
    return frozenset(fitting or possible)


def counted(history: VllmRun, step: Step, chunk: Chunk) -> int:
    """Return the prompt throughput of a step if hits count with this chunk."""
    return sum(tokens for _, tokens in COUNTED[chunk](history, step))


def counted_last(history: VllmRun, step: Step) -> list[tuple[str, int]]:
    counts = []
    for name, tokens in step.scheduled.items():
        request = history.live.get(name)
        if request is None or request.emitted or name in history.aborts_inside:
            continue
        # The whole prompt of a request that emits is computed; a request that finishes shows no
        # hit.
        whole = request.prompt - (request.computed - request.prefix_hit)
        counts.append((name, whole if name in (step.emitted or {}) else tokens))
    return counts


def counted_first(history: VllmRun, step: Step) -> list[tuple[str, int]]:
    counts = []
    for name, tokens in counted_last(history, step):
        request = history.live[name]
        if request.started or name not in (step.emitted or {}):
            hit = 0 if request.started else history.hit_now(step, request) or 0
            tokens = step.scheduled[name] + hit
        counts.append((name, tokens))
    return counts


COUNTED: dict[Chunk, Callable[[VllmRun, Step], list[tuple[str, int]]]] = {
    "first": counted_first,
    "last": counted_last,
}
