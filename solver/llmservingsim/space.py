"""LLMServingSim's models for `solver.exploration`, one for each pool size, and their scopes.

Sizes are the smallest at which every constraint can take effect: blocks of two tokens, a budget of
two blocks, and pools that two requests fill. The states have the same fields as vLLM's, so vLLM's
key can remove the names. Pools of different sizes are never explored together.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model.llmservingsim import scheduler
from ...model.llmservingsim.state import Sequence, State
from ..exploration.branching_history import BranchingHistory
from ..exploration.models import QueueModels
from ..exploration.scope import MenuItem, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN, OpenFields, outlasts_token
from ..systems import SystemSpace
from ..vllm.key import Key

SMALLEST = {
    "block_size": 2,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 4,
    "enable_prefix_caching": False,
}
EVERY_LENGTH = tuple(lengths(range(1, 7), range(1, 5)))
SOME_LENGTHS = tuple(lengths((1, 3, 4, 6), (1, 3, 5)))
FEW_LENGTHS = tuple(lengths((1, 4), (1, 4)))
# Prompts that share a beginning with the first one, up to a block boundary or not, that continue it
# or its output, that contain its beginning after other tokens, or that consist of different tokens.
SHARED = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 2),),
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 4), (OWN, 2)),
        (("shared", 4), ("out:r0", 2)),
        (("other", 2), ("shared", 3)),
        (("other", 3),),
        ((OWN, 5),),
    )
    for tokens in (1, 4)
)


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of LLMServingSim; its limits are values of num_blocks."""

    system: ClassVar[str] = "llmservingsim"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[MenuItem, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = (3, 4, 5, 6)


CACHES = ("enable_prefix_caching", True)
NO_CAP = ("max_num_seqs", 0)
WHOLE = (("enable_chunked_prefill", False), ("max_num_batched_tokens", 7))
FIRST = ("prioritize_prefill", True)
PAGE = ("documented",)
# Each prompt once, alternating between the smallest and the largest max_tokens.
ALTERNATING = (*SHARED[0::4], *SHARED[3::4])
# A chunk of three tokens ends inside a block.
ODD_CHUNKS = (("long_prefill_token_threshold", 3), ("max_num_batched_tokens", 6))

SCOPES = (
    Scope("lengths", "prompts up to 6, outputs up to 4 tokens", 3, limits=(3, 5)),
    Scope("four", "four requests for three slots", 4, FEW_LENGTHS),
    Scope("slots", "two slots", 3, SOME_LENGTHS, config=(("max_num_seqs", 2),)),
    Scope("no cap", "any number of requests", 3, SOME_LENGTHS, (4, 6, 9), config=(NO_CAP,)),
    Scope("aborts", "clients that give up", 3, FEW_LENGTHS, aborts="alone"),
    Scope(
        "few tokens",
        "a budget of two tokens",
        3,
        FEW_LENGTHS,
        (4, 6),
        config=(("max_num_batched_tokens", 2),),
    ),
    Scope("threshold", "chunks of three tokens", 3, SOME_LENGTHS, config=ODD_CHUNKS),
    Scope("whole prompts", "chunking off", 3, SOME_LENGTHS, (4, 6), config=WHOLE),
    Scope(
        "prefills first",
        "prefills are prioritised",
        3,
        SOME_LENGTHS,
        (4, 6),
        config=(FIRST,),
        revisions=PAGE,
    ),
    Scope("cache", "prompts that begin alike", 3, ALTERNATING, (4, 5), config=(CACHES,)),
    Scope(
        "cache aborts",
        "prompts that begin alike, with clients that give up",
        2,
        SHARED,
        (3, 4, 5),
        "alone",
        (CACHES,),
    ),
)


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


class LlmServingSimModels(QueueModels):
    """The models of one revision in one configuration: one model for each pool size, smallest
    first."""

    system = "llmservingsim"
    sequence, open_sequence = Sequence, OpenSequence

    @property
    def waits_are_bounded(self) -> bool:  # type: ignore[override]
        """Whether waits are bounded. With chunking off, they are not, because later requests may
        take the blocks that the first in line needs."""
        return bool(self.configs[0]["enable_chunked_prefill"])

    def queued(self, state: State, sequence: Sequence) -> State:
        return scheduler.arrive(state, sequence)

    def quiet(self, state: State) -> bool:
        config, running = self.models[0].config, len(state.running)
        if state.waiting or running > config.max_num_batched_tokens:
            return False
        if running and not config.has_slot(running - 1):
            return False
        block, caches = config.block_size, config.enable_prefix_caching
        return all(
            sequence.decodes
            and sequence.computed % block
            and not (caches and (sequence.computed + 1) % block == 0)
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        caches = self.configs[0]["enable_prefix_caching"]
        return Key(caches, self.mentioned, newest=True)(state, history)


SPACE = SystemSpace(SCOPES, "num_blocks", "pool", LlmServingSimModels)
