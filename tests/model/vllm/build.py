"""Small numbers to reckon with by hand: block 4, budget 16, states put together from parts."""

from collections.abc import Sequence as Listed
from typing import Any

from schedproof.model.pool import Pool
from schedproof.model.vllm import completion, scheduler
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.state import Sequence, State

SMALL = {
    **{"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64},
    "enable_prefix_caching": False,
}


def config(**changes: Any) -> VllmConfig:
    """A configuration without a prefix cache, a pool, a threshold or a watermark."""
    return VllmConfig(**(SMALL | changes))


def waiting(prompt: int, max_tokens: int = 4, name: str = "new", **changes: Any) -> Sequence:
    """A request that nothing has happened to yet; its tokens are its own."""
    sequence = Sequence(name, prompt, max_tokens, max_tokens, content=((name, prompt),))
    return sequence._replace(**changes)


def decoding(name: str, computed: int, *blocks: int, **changes: Any) -> Sequence:
    """A request with a prompt of `computed` that has emitted its first token of nine."""
    prefilled = waiting(computed, 9, name, computed=computed, generated=1, blocks=blocks)
    return prefilled._replace(**changes)


def pool(size: int | None, held: int) -> Pool:
    """A pool of which the first `held` blocks are in use."""
    return Pool(size, fresh=held + 1)


def ids(members: Listed[Sequence]) -> list[str]:
    """The names, in order."""
    return [sequence.id for sequence in members]


def stepped(
    config: VllmConfig, state: State, inside: tuple[str, ...] = ()
) -> tuple[State, dict[str, Any]]:
    """The state after a step, and what the step shows."""
    return completion.carry_out(config, state, scheduler.schedule(config, state), inside)
