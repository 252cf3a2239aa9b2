"""Faults in chunks, padding, blocks and hits, to be planted in the Spyre model."""

from collections.abc import Callable
from typing import Any

from ....model.pool import blocks_for
from ....model.spyre.state import Sequence, State


def whole_prompt(original: Any) -> Any:
    """Prefill is not chunked."""
    return lambda prompt, computed, chunk_size, block_size: (computed, prompt)


def full_first_chunk(original: Any) -> Any:
    """The first chunk is filled with tokens, its padding is forgotten in the sizes."""

    def next_chunk(prompt: int, computed: int, chunk_size: int, block_size: int) -> Any:
        return computed, min(computed + chunk_size, prompt)

    return next_chunk


def no_padding_in_one_chunk(original: Any) -> Any:
    """A prompt of a single chunk is left-aligned in it."""
    return lambda prompt, chunk, block: 0 if prompt <= chunk else original(prompt, chunk, block)


def chunk_of_padding_more(config: Any, seen: dict[str, Any]) -> None:
    """A chunk of nothing but padding in front."""
    if seen["kind"] == "prefill":
        pads = seen["left_pad_blocks"]
        more = config.chunk_size // config.block_size
        seen["left_pad_blocks"] = {name: pad + more for name, pad in pads.items()}


def first_token_late(_: Any, seen: dict[str, Any]) -> None:
    """The token of the last chunk is kept back, unless the request ends with it."""
    if seen["kind"] == "prefill" and not seen["finished"]:
        seen["emitted"] = {}


def block_short_at_border(config: Any, seen: dict[str, Any]) -> None:
    """A token at the start of a block has no block."""
    for name, held in seen["blocks"].items():
        if seen["computed"][name] % config.block_size == 1 and len(held) > 1:
            held.pop()


def padding_elsewhere(original: Any) -> Any:
    """Padding is written to block 1."""

    def written(config: Any, one: Sequence, pad: int, end: int) -> list[int]:
        before = pad + blocks_for(end, config.block_size)
        first = before - config.chunk_size // config.block_size
        numbers = original(config, one, pad, end)
        return [1 if first + n < pad else number for n, number in enumerate(numbers)]

    return written


def cached_blocks_written(original: Any) -> Any:
    """What is computed again is also written again."""
    return lambda config, one, pad, end: original(config, one._replace(prefix_hit=0), pad, end)


def last_block_hit(original: Any) -> Any:
    """The last token of a prompt, too, is taken from the cache."""
    return lambda pool, content, tokens, block: original(pool, content, tokens + 1, block)


def cached_chunks_computed(original: Any) -> Any:
    """Hits hold their blocks and save nothing."""

    def admit(config: Any, state: State, newcomer: Sequence) -> Any:
        admitted, pool = original(config, state, newcomer)
        return admitted._replace(computed=0), pool

    return admit


def at_least_nothing(_: Any, seen: dict[str, Any]) -> None:
    """A chunk that is cached as a whole computes no token."""
    seen["scheduled"] = {name: max(tokens, 0) for name, tokens in seen["scheduled"].items()}


def hit_cut_short(original: Any) -> Any:
    """The last block of every hit is not taken."""
    return lambda config, state, newcomer: original(config, state, newcomer)[:-1]


def outputs_not_published(original: Any) -> Any:
    """Blocks of generated tokens cannot be found."""

    def hold(config: Any, one: Sequence, covered: int, pool: Any) -> Any:
        after, grown = original(config, one, covered, pool)
        if covered > one.prompt:
            known = {c: held for c, held in grown.cached.items() if c in pool.cached}
            grown = grown._replace(cached=known)
        return after, grown

    return hold


def block_not_given_back(original: Any) -> Any:
    """The last block of a request that leaves is lost."""

    def release(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        shorter = one._replace(blocks=one.blocks[:-1], published=min(one.published, 1))
        return original(config, rev, state, shorter)

    return release


def pads_changed(change: Callable[[list[int]], list[int]]) -> Callable[[Any], Any]:
    """Other left padding in decode."""

    def make(original: Any) -> Any:
        return lambda lengths, block: change(original(lengths, block))

    return make
