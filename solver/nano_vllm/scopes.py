"""What is explored of nano-vLLM's scheduler.

Sizes are the smallest at which every constraint can bind: blocks of two tokens, a budget of a few,
pools that two sequences fill. Each scope is explored for every one of its pools.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..exploration.scope import MenuItem, Ranked, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN

SMALLEST = {"block_size": 2, "max_num_seqs": 3, "max_num_batched_tokens": 8}
EVERY_LENGTH = tuple(lengths(range(1, 6), range(1, 5)))
SOME_LENGTHS = tuple(lengths((1, 3, 4), (1, 2, 4)))
FEW_LENGTHS = tuple(lengths((1, 4), (1, 4)))
IN_CHUNKS = ("0.2.0",)
# What the first request says, in whole blocks and not, and on, and what it generates; and
# something else.
SHARED: tuple[MenuItem, ...] = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 4), (OWN, 2)),
        (("shared", 4), ("out:r0", 2)),
        ((OWN, 5),),
    )
    for tokens in (1, 3)
)


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of nano-vLLM; its limits are those of num_blocks."""

    system: ClassVar[str] = "nano_vllm"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[MenuItem | Ranked, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = (3, 4, 5)


SCOPES = (
    Scope("lengths", "prompts to 5, outputs to 4 tokens", 3),
    Scope("four", "four sequences for three slots", 4, FEW_LENGTHS, (4, 5)),
    Scope("slots", "two slots", 3, SOME_LENGTHS, config=(("max_num_seqs", 2),)),
    Scope("aborts", "clients that give up", 3, FEW_LENGTHS, aborts="alone"),
    Scope(
        "chunks",
        "a budget of three tokens, so that prompts are computed in part",
        3,
        SOME_LENGTHS,
        config=(("max_num_batched_tokens", 3),),
        revisions=IN_CHUNKS,
    ),
    Scope("cache", "prompts that begin alike", 3, SHARED[1::2], (4, 5)),
    Scope(
        "cache in chunks",
        "the same in chunks of three tokens, with clients that give up",
        2,
        SHARED,
        (4, 5),
        "alone",
        (("max_num_batched_tokens", 3),),
        IN_CHUNKS,
    ),
)
# What a fault has to show itself in.
CHECKUP = (
    Scope("two", "two sequences", 2, SOME_LENGTHS, aborts="alone"),
    Scope("five", "a budget of five", 2, SOME_LENGTHS, config=(("max_num_batched_tokens", 5),)),
    Scope("slots", "two slots", 3, FEW_LENGTHS, config=(("max_num_seqs", 2),)),
    Scope("three", "three sequences", 3, FEW_LENGTHS, (4,)),
    Scope(
        "chunks",
        "a budget of three",
        2,
        SOME_LENGTHS,
        config=(("max_num_batched_tokens", 3),),
        revisions=IN_CHUNKS,
    ),
    Scope("cache", "prompts that begin alike", 3, SHARED[1::2], (4,)),
    Scope(
        "cache in chunks",
        "the same in chunks of three tokens, with clients that give up",
        2,
        SHARED[::2],
        (4,),
        "alone",
        (("max_num_batched_tokens", 3),),
        IN_CHUNKS,
    ),
    Scope("four", "four sequences", 4, FEW_LENGTHS, (4,)),
)
