"""What a prefill step computes: one right-aligned chunk, and a token from the last.

Source: Spyre scheduling page, "Prefill padding", "Chunked Prefill" and "Skipping full chunks".
"""

from math import ceil

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate


def more_than_a_chunk(history: RunHistory, step: Step) -> str | None:
    """A prefill step computes at most one chunk, and a prompt takes ceil(p / C) of them, less
    those that are cached as a whole (SPY-R04)."""
    chunk = history.config["chunk_size"]
    for one in history.prefill_members(step):
        tokens = step.scheduled[one.id]
        if tokens > chunk:
            return f"{one.id} prefills {tokens} tokens in a step, chunk_size is {chunk}"
        before = computed_before(history, step, one)
        if before is None:
            continue
        hit = one.prefix_hit if one.started else before
        cached = (hit + left_padding(history, one)) // chunk if hit else 0
        steps, needed = one.prefill_steps + 1, ceil(one.prompt / chunk) - cached
        done = before + tokens >= one.prompt
        if hit and may_run_cached(history):
            needed, done = needed + cached, False
        if steps > needed or (done and steps != needed):
            return f"{one.id} ({one.prompt} tokens) is in prefill step {steps} of {needed}"
    return None


def may_run_cached(history: RunHistory) -> bool:
    """By the page a cached chunk *can* be skipped, and a hit may include the last one, which runs
    all the same. Releases skip all but the last (SPY-R54), of which a hit leaves a token."""
    return history.revision == "documented"


def computed_before(history: RunHistory, step: Step, one: RequestHistory) -> int | None:
    """Tokens of a prompt that need no computing in this step; None where it cannot be known."""
    hit = history.hit_now(step, one)
    return None if hit is None else one.computed + hit


def several_chunks(history: RunHistory, step: Step) -> bool:
    """A prompt longer than a chunk is prefilled."""
    return any(one.prompt > history.config["chunk_size"] for one in history.prefill_members(step))


def wrong_chunk(history: RunHistory, step: Step) -> str | None:
    """First chunk minus left padding, then whole chunks, then the rest (SPY-R19)."""
    chunk = history.config["chunk_size"]
    for one in history.prefill_members(step):
        before = computed_before(history, step, one)
        if before is None:
            continue
        cached = one.prefix_hit or (0 if one.started else before)
        if cached and not step.scheduled[one.id] and may_run_cached(history):
            continue
        padding = left_padding(history, one)
        end = ((before + padding) // chunk + 1) * chunk - padding
        expected = min(end, one.prompt) - before
        if step.scheduled[one.id] != expected:
            return (
                f"{one.id} prefills {step.scheduled[one.id]} tokens after {before} of "
                f"{one.prompt}; the chunk holds {expected} (left padding {padding} tokens)"
            )
    return None


def padded_and_several_chunks(history: RunHistory, step: Step) -> bool:
    """A prompt of several chunks with left padding is prefilled."""
    return several_chunks(history, step) and _padded(history, step)


def wrong_left_padding(history: RunHistory, step: Step) -> str | None:
    """Left padding is ceil(p/C)*C - ceil(p/B)*B tokens (SPY-R16)."""
    block = history.config["block_size"]
    for one in history.prefill_members(step):
        seen, expected = _pad(step, one) * block, left_padding(history, one)
        if seen != expected:
            return (
                f"{one.id} ({one.prompt} tokens) has {seen} tokens of left padding, "
                f"expected {expected}"
            )
    return None


def not_right_aligned(history: RunHistory, step: Step) -> str | None:
    """Padding plus the prompt's blocks end at a chunk border (SPY-R14)."""
    block, chunk = history.config["block_size"], history.config["chunk_size"]
    for one in history.prefill_members(step):
        end = (_pad(step, one) + ceil(one.prompt / block)) * block
        if end % chunk:
            return (
                f"the last block of {one.id} ends at padded position {end}, "
                f"{chunk - end % chunk} tokens before the end of its chunk of {chunk}"
            )
    return None


def _padded(history: RunHistory, step: Step) -> bool:
    """A prompt whose blocks do not fill its chunks is prefilled."""
    return any(left_padding(history, one) > 0 for one in history.prefill_members(step))


def wrong_first_token(history: RunHistory, step: Step) -> str | None:
    """The last chunk emits exactly one token, the others none (SPY-R20)."""
    for one in history.prefill_members(step):
        before = computed_before(history, step, one)
        if before is None:
            continue
        last = before + step.scheduled[one.id] >= one.prompt
        expected = int(last and one.id not in history.aborts_inside)
        emitted = (step.emitted or {}).get(one.id, 0)
        if emitted != expected:
            which = "last" if last else "unfinished"
            return f"the {which} chunk of {one.id} emits {emitted} tokens, expected {expected}"
    return None


def left_padding(history: RunHistory, one: RequestHistory) -> int:
    """Tokens before the prompt that make it end with its last chunk."""
    block, chunk = history.config["block_size"], history.config["chunk_size"]
    padding: int = ceil(one.prompt / chunk) * chunk - ceil(one.prompt / block) * block
    return padding


def _pad(step: Step, one: RequestHistory) -> int:
    return (step.left_pad_blocks or {}).get(one.id, 0)


PREDICATES = {
    "SPY-R04": Predicate(more_than_a_chunk, several_chunks, "prefill"),
    "SPY-R19": Predicate(wrong_chunk, padded_and_several_chunks, "prefill"),
    "SPY-R16": Predicate(wrong_left_padding, _padded, "prefill"),
    "SPY-R14": Predicate(not_right_aligned, _padded, "prefill"),
    "SPY-R20": Predicate(wrong_first_token, several_chunks, "prefill"),
}
