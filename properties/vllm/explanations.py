"""Explain how vLLM's features contribute to a failure: turns of sessions, loads, adapters, encoder
inputs, and the worker's block tables."""

from collections.abc import Iterator

from ...model.scenario import Request
from ..explanations.failure import Failure
from .history.partitions import adapters_are_limited
from .history.request_history import VllmRequestHistory
from .history.run import state_of


def facts(failure: Failure) -> Iterator[str]:
    """Yield sentences about the requests that the failure's message names, with facts that its
    picture does not show."""
    message = failure.first.message
    if adapters_are_limited(failure.config) and (failure.waits or "adapter" in message):
        yield from _adapters(failure)
    for sent in failure.scenario.requests:
        request = failure.history.requests.get(sent.id)
        if request is None or not failure.concerns(sent.id):
            continue
        if sent.turns:
            yield from _turn(sent, request)
        elif request.parked_since is not None:
            yield from _load(failure, sent, request)
        if request.ended and sent.send_steps is not None and "sent" in message:
            yield _sends(sent, request)
        if "encoder input" in message:
            yield from _inputs(failure, request)
        if "worker" in message:
            yield from _tables(failure, request)


def _adapters(failure: Failure) -> Iterator[str]:
    shown = failure.history.live.keys() | failure.last.scheduled.keys()
    used = [
        f"{sent.id} has adapter {sent.lora}"
        for sent in failure.scenario.requests
        if sent.lora and sent.id in shown
    ]
    if used:
        yield ", ".join(used)


def _turn(sent: Request, request: VllmRequestHistory) -> Iterator[str]:
    number = len(sent.turns) - len(request.turns)
    if not number or request.parked_since is None:
        return
    coming = sent.turns[number - 1].prompt_len
    yield (
        f"step {request.parked_since}: turn {number} of {sent.id} ends, and its last token is "
        f"dropped; turn {number + 1} adds {coming} token{'s' * (coming != 1)} to the "
        f"{request.prompt - coming} before"
    )


def _load(failure: Failure, sent: Request, request: VllmRequestHistory) -> Iterator[str]:
    if not request.tokens_loading and request.began != failure.first.step:
        return
    tokens = request.tokens_loading or sent.external_tokens
    left = request.load_left
    state = f"the load ends after {left} more report{'s' * (left != 1)} of the worker"
    if sent.load_fails_at is not None:
        state = f"the load fails at token {sent.load_fails_at}"
    elif request.began == failure.first.step:
        state = f"the load takes {sent.load_steps} more step{'s' * (sent.load_steps != 1)}"
    elif not left:
        state = "the load has finished"
    yield (
        f"step {request.parked_since}: the connector begins to load tokens 0 to {tokens - 1} of "
        f"{request.id}; {state}"
    )


def _sends(sent: Request, request: VllmRequestHistory) -> str:
    more = sent.send_steps
    until = f" and in {more} more step{'s' * (more != 1)}" if more else ""
    return (
        f"step {request.ended_at}: {request.id} leaves ({request.ended}); the connector sends its "
        f"blocks in the step after this one{until}"
    )


def _inputs(failure: Failure, request: VllmRequestHistory) -> Iterator[str]:
    if places := ", ".join(f"{image.name} at {image.start}" for image in request.inputs):
        now = failure.last.scheduled.get(request.id, 0)
        yield (
            f"the encoder inputs of {request.id} begin at these tokens: {places}; "
            f"the step computes {now} token{'s' * (now != 1)} of {request.id}, up to token "
            f"{request.computed - 1}"
        )


def _tables(failure: Failure, request: VllmRequestHistory) -> Iterator[str]:
    name, step = request.id, failure.last
    worker = state_of(failure.history).worker
    if name not in worker or step.blocks is None:
        return
    own = (step.blocks.get(name, ()), *(step.group_blocks or {}).get(name, ()))
    for number, table in enumerate(own):
        tables = worker[name].tables
        other = tables[number] if number < len(tables) else ()
        if tuple(table) != tuple(other):
            group = f" in group {number}" if len(own) > 1 else ""
            yield (
                f"{name}'s block table{group}: the scheduler has {_words(table)}, "
                f"the worker {_words(other)}"
            )


def _words(table: tuple[int, ...]) -> str:
    return " ".join(map(str, table)) or "none"
