"""Prefix hits: which blocks requests share, which chunks are skipped, and which run despite a hit.

Source: Spyre scheduling page, "Prefix caching". Hits are known if the target shows them. In the
functions below, `hit` is the number of a request's hit blocks.
"""

from ....model.observation import Step
from ...history.content import common_prefix_len, known_tokens
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.pool import must_be_found_again
from ...rules.predicate import PHASES, Predicate
from .prefill import left_padding, may_run_cached


def padding_not_block_0(history: RunHistory, step: Step) -> str | None:
    """Check that padding is block 0, and that no request holds it (SPY-R11)."""
    for name, blocks in (step.blocks or {}).items():
        if 0 in blocks:
            return f"{name} holds block 0, the padding block"
    for request in history.prefill_members(step):
        written = (step.slot_blocks or {}).get(request.id, ())
        for own, number in _positions(history, step, request, written):
            if own < 0 and number != 0:
                return f"padding of {request.id} writes to block {number}, not to block 0"
    return None


def first_chunk_padded(history: RunHistory, step: Step) -> bool:
    return any(
        own < 0
        for request in history.prefill_members(step)
        for own, _ in _positions(
            history, step, request, (step.slot_blocks or {}).get(request.id, ())
        )
    )


def everything_cached(history: RunHistory, step: Step) -> str | None:
    """Check that the last chunk of a prompt runs (SPY-R55).

    According to the scheduling page, a hit may include the whole last chunk, which runs to yield
    the first token. In releases, a hit never includes the last token.
    """
    runs = (step.emitted or {}) if may_run_cached(history) else ()
    for request in starting(history, step):
        hit = history.hit_now(step, request)
        if hit is not None and hit >= request.prompt and request.id not in runs:
            return f"{request.id} finds its whole prompt of {request.prompt} tokens in the cache"
    return None


def whole_prompt_known(history: RunHistory, step: Step) -> bool:
    return any(
        request.prompt % history.config["block_size"] == 0
        and known_elsewhere(history, request) >= request.prompt
        for request in starting(history, step)
    )


def cached_chunk_computed(history: RunHistory, step: Step) -> str | None:
    """Check that an entirely cached chunk is skipped (SPY-R54).

    `scheduled` does not count cached tokens, so such a chunk shows as 0 tokens.
    """
    for request in history.prefill_members(step):
        if step.scheduled[request.id] == 0:
            return f"{request.id} runs a chunk all of whose tokens are cached"
    return None


def chunk_skipped(history: RunHistory, step: Step) -> bool:
    chunk = history.config["chunk_size"]
    return any(
        (history.hit_now(step, request) or 0) + left_padding(history, request) >= chunk
        for request in starting(history, step)
        if request.prompt > chunk and history.hit_now(step, request)
    )


def wrong_write(history: RunHistory, step: Step) -> str | None:
    """Check that recomputed tokens of cached blocks are written to block 0, and all other tokens to
    their own block (SPY-R56)."""
    places = history.config["chunk_size"] // history.config["block_size"]
    for request in history.prefill_members(step):
        hit = request.prefix_hit if request.started else history.hit_now(step, request)
        if hit is None or (hit and not step.scheduled[request.id] and may_run_cached(history)):
            continue
        held = (step.blocks or {}).get(request.id, ())
        written = (step.slot_blocks or {}).get(request.id, ())
        if len(written) != places and request.id not in history.aborts_inside:
            return (
                f"{request.id} names the block written at {len(written)} of the {places} block "
                "positions of a chunk"
            )
        for own, number in _positions(history, step, request, written):
            cached = own * history.config["block_size"] < hit
            if own >= 0 and cached and number != 0:
                again = f"written again, to block {number} of the pool"
                return f"block {own} of {request.id} is cached, but {again}"
            its_own = held[own] if 0 <= own < len(held) else number
            if own >= 0 and not cached and (number == 0 or number != its_own):
                return f"block {own} of {request.id} is {its_own}, but block {number} is written"
    return None


def cached_block_in_chunk(history: RunHistory, step: Step) -> bool:
    return any(
        own >= 0 and own * history.config["block_size"] < (history.hit_now(step, request) or 0)
        for request in starting(history, step)
        for own, _ in _positions(
            history, step, request, (step.slot_blocks or {}).get(request.id, ())
        )
    )


def prompt_not_shared(history: RunHistory, step: Step) -> str | None:
    """Check that a starting request finds the full blocks of its prompt that a running request has
    computed, except the block of its last token, and writes to no block of another request
    (SPY-R57)."""
    for request in starting(history, step):
        hit = history.hit_now(step, request)
        due = shareable(history, request, of_prompts=True)
        if hit is not None and hit < due:
            return f"{request.id} finds {hit} tokens in the cache, but a running request has {due}"
    return _shared_block_written(history, step)


def _shared_block_written(history: RunHistory, step: Step) -> str | None:
    """Return a message if a prefill writes to a block that another request holds."""
    for writer in history.prefill_members(step):
        written = {*(step.slot_blocks or {}).get(writer.id, ())} - {0}
        for name, table in (step.blocks or {}).items():
            if name in history.live and name != writer.id and (both := written.intersection(table)):
                return (
                    f"{writer.id} writes to block {min(both)}, which {name} holds as well, instead "
                    "of a block of its own"
                )
    return None


def prompt_is_shared(history: RunHistory, step: Step) -> bool:
    return any(
        shareable(history, request, of_prompts=True) > 0 for request in starting(history, step)
    )


def output_not_shared(history: RunHistory, step: Step) -> str | None:
    """Check that a prefix hit also covers tokens that a running request has generated (SPY-R60)."""
    for request in starting(history, step):
        hit = history.hit_now(step, request)
        due = shareable(history, request, of_prompts=False)
        if hit is not None and hit < due:
            return (
                f"{request.id} finds {hit} tokens in the cache, but must find {due}, including "
                "generated ones"
            )
    return None


def output_is_shared(history: RunHistory, step: Step) -> bool:
    return any(
        shareable(history, request, of_prompts=False) > shareable(history, request, of_prompts=True)
        for request in starting(history, step)
    )


def starting(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Return the requests whose first chunk runs in this step. Return none if prefix caching is
    off."""
    if not history.config["prefix_caching"]:
        return []
    return [request for request in history.prefill_members(step) if not request.started]


def shareable(history: RunHistory, newcomer: RequestHistory, *, of_prompts: bool) -> int:
    """Return how many tokens of a newcomer are in full blocks of a running request, not counting
    the block of the newcomer's last token."""
    block = history.config["block_size"]
    known = known_elsewhere(history, newcomer, of_prompts=of_prompts)
    return int(min(known, newcomer.prompt - 1) // block * block)


def known_elsewhere(
    history: RunHistory, newcomer: RequestHistory, *, of_prompts: bool = False
) -> int:
    """Return how many of the first tokens of a prompt another unfinished request has computed."""
    return max(
        (
            min(
                common_prefix_len(newcomer.content, known_tokens(other)),
                other.computed,
                other.prompt if of_prompts else other.computed,
            )
            for other in history.live.values()
            if other is not newcomer and other.started
        ),
        default=0,
    )


def _positions(
    history: RunHistory, step: Step, request: RequestHistory, written: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return, for each block of the chunk, its index among the request's own blocks and the number
    of the block that is written. In the padding, the index is negative."""
    hit = 0 if request.started else history.hit_now(step, request)
    if hit is None or not written:
        return []
    block, chunk = history.config["block_size"], history.config["chunk_size"]
    padding = left_padding(history, request)
    first = (request.computed + hit + padding) // chunk * (chunk // block) - padding // block
    return [(first + place, number) for place, number in enumerate(written)]


PREDICATES = {
    "SPY-R55": Predicate(everything_cached, whole_prompt_known, "prefill"),
    "SPY-R54": Predicate(
        cached_chunk_computed, chunk_skipped, "prefill", reads=("finished", "prefix_hit")
    ),
    "SPY-R57": Predicate(prompt_not_shared, prompt_is_shared, "prefill"),
    "SPY-R60": Predicate(output_not_shared, output_is_shared, "prefill"),
    "SPY-R63": must_be_found_again(starting),
    "SPY-R11": Predicate(
        padding_not_block_0,
        first_chunk_padded,
        reads=("blocks", "finished", PHASES, "prefix_hit", "scheduled", "slot_blocks"),
    ),
    "SPY-R56": Predicate(wrong_write, cached_block_in_chunk, "prefill"),
}
