"""The work of a prefill step: it computes one right-aligned chunk, and the last chunk yields a
token.

Source: Spyre scheduling page, "Prefill padding", "Chunked Prefill" and "Skipping full chunks".
"""

from math import ceil

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate


def more_than_a_chunk(history: RunHistory, step: Step) -> str | None:
    """Check that a prefill step computes at most one chunk, and that a prompt takes ceil(p / C)
    chunks, minus those that are entirely cached (SPY-R04)."""
    chunk = history.config["chunk_size"]
    for request in history.prefill_members(step):
        tokens = step.scheduled[request.id]
        if tokens > chunk:
            return f"{request.id} prefills {tokens} tokens in a step, but chunk_size is {chunk}"
        before = computed_before(history, step, request)
        if before is None:
            continue
        hit = request.prefix_hit if request.started else before
        cached = (hit + left_padding(history, request)) // chunk if hit else 0
        steps, needed = request.prefill_steps + 1, ceil(request.prompt / chunk) - cached
        done = before + tokens >= request.prompt
        if hit and may_run_cached(history):
            needed, done = needed + cached, False
        if steps > needed or (done and steps != needed):
            return f"{request.id} ({request.prompt} tokens) is in prefill step {steps} of {needed}"
    return None


def may_run_cached(history: RunHistory) -> bool:
    """Return whether entirely cached chunks may run.

    According to the scheduling page, a cached chunk *can* be skipped, and a hit may include the
    last chunk, which still runs. Releases skip all cached chunks but the last (SPY-R54), and a hit
    never includes the last token.
    """
    return history.revision == "documented"


def computed_before(history: RunHistory, step: Step, request: RequestHistory) -> int | None:
    """Return how many tokens of a prompt are computed or cached before this step, or None if the
    number is unknown."""
    hit = history.hit_now(step, request)
    return None if hit is None else request.computed + hit


def several_chunks(history: RunHistory, step: Step) -> bool:
    return any(
        request.prompt > history.config["chunk_size"] for request in history.prefill_members(step)
    )


def wrong_chunk(history: RunHistory, step: Step) -> str | None:
    """Check that the first chunk is shorter by the left padding, and that whole chunks follow, then
    the rest (SPY-R19)."""
    chunk = history.config["chunk_size"]
    for request in history.prefill_members(step):
        before = computed_before(history, step, request)
        if before is None:
            continue
        cached = request.prefix_hit or (0 if request.started else before)
        if cached and not step.scheduled[request.id] and may_run_cached(history):
            continue
        padding = left_padding(history, request)
        end = ((before + padding) // chunk + 1) * chunk - padding
        expected = min(end, request.prompt) - before
        if step.scheduled[request.id] != expected:
            return (
                f"{request.id} prefills {step.scheduled[request.id]} tokens after {before} of "
                f"{request.prompt}, but this chunk has room for {expected} (left padding "
                f"{padding} tokens)"
            )
    return None


def padded_and_several_chunks(history: RunHistory, step: Step) -> bool:
    return several_chunks(history, step) and _padded(history, step)


def wrong_left_padding(history: RunHistory, step: Step) -> str | None:
    """Check that left padding is ceil(p/C)*C - ceil(p/B)*B tokens, for a prompt of p tokens, chunks
    of C and blocks of B (SPY-R16)."""
    block = history.config["block_size"]
    for request in history.prefill_members(step):
        seen, expected = _pad(step, request) * block, left_padding(history, request)
        if seen != expected:
            return (
                f"{request.id} ({request.prompt} tokens) has {seen} tokens of left padding, "
                f"expected {expected}"
            )
    return None


def not_right_aligned(history: RunHistory, step: Step) -> str | None:
    """Check that padding plus the prompt's blocks end at a chunk boundary (SPY-R14)."""
    block, chunk = history.config["block_size"], history.config["chunk_size"]
    for request in history.prefill_members(step):
        end = (_pad(step, request) + ceil(request.prompt / block)) * block
        if end % chunk:
            return (
                f"the last block of {request.id} ends at padded position {end}, "
                f"{chunk - end % chunk} tokens before the end of its chunk of {chunk}"
            )
    return None


def _padded(history: RunHistory, step: Step) -> bool:
    return any(left_padding(history, request) > 0 for request in history.prefill_members(step))


def wrong_first_token(history: RunHistory, step: Step) -> str | None:
    """Check that the last chunk yields exactly one token, and the others none (SPY-R20)."""
    for request in history.prefill_members(step):
        before = computed_before(history, step, request)
        if before is None:
            continue
        last = before + step.scheduled[request.id] >= request.prompt
        expected = int(last and request.id not in history.aborts_inside)
        emitted = (step.emitted or {}).get(request.id, 0)
        if emitted != expected:
            which = "last" if last else "unfinished"
            return f"the {which} chunk of {request.id} emits {emitted} tokens, expected {expected}"
    return None


def left_padding(history: RunHistory, request: RequestHistory) -> int:
    """Return how many tokens of padding before the prompt make its blocks end at a chunk
    boundary."""
    block, chunk = history.config["block_size"], history.config["chunk_size"]
    padding: int = ceil(request.prompt / chunk) * chunk - ceil(request.prompt / block) * block
    return padding


def _pad(step: Step, request: RequestHistory) -> int:
    return (step.left_pad_blocks or {}).get(request.id, 0)


PREDICATES = {
    "SPY-R04": Predicate(more_than_a_chunk, several_chunks, "prefill"),
    "SPY-R19": Predicate(wrong_chunk, padded_and_several_chunks, "prefill"),
    "SPY-R16": Predicate(wrong_left_padding, _padded, "prefill", reads=("left_pad_blocks",)),
    "SPY-R14": Predicate(not_right_aligned, _padded, "prefill", reads=("left_pad_blocks",)),
    "SPY-R20": Predicate(wrong_first_token, several_chunks, "prefill"),
}
