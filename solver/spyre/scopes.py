"""What is explored of Spyre's scheduler: how many requests of which menu, in which configuration.

Sizes are the smallest at which every constraint can bind: a chunk is two blocks of two tokens,
prompts take up to three chunks. Each scope is explored for every one of its limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..exploration.scope import MenuItem, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN

SMALLEST = {"block_size": 2, "chunk_size": 4, "max_num_seqs": 3, "max_model_len": 16}
EVERY_LENGTH = tuple(lengths(range(1, 10), range(1, 7)))
SOME_LENGTHS = tuple(lengths((1, 3, 4, 7), (1, 3, 6)))
SOME_LIMITS = (8, 12, 16, 20, 28, 40)
# What the first request says, in whole blocks and not, to its end and on, and what it generates.
SHARED = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 2),),
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 8),),
        (("shared", 4), (OWN, 3)),
        (("shared", 4), ("out:r0", 4)),
    )
    for tokens in (1, 4)
)
# With three requests: those of a chunk at least.
A_CHUNK_AND_MORE = SHARED[2:]


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of Spyre; its limits are those of max_batch_tkv."""

    system: ClassVar[str] = "spyre"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[MenuItem, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = tuple(range(6, 41))


def named(name: str) -> Scope:
    """The scope of this name."""
    return next(one for one in SCOPES if one.name == name)


SCOPES = (
    Scope("lengths", "prompts to 9, outputs to 6 tokens", 4),
    Scope("aborts", "with clients that give up", 3, SOME_LENGTHS, SOME_LIMITS, "alone"),
    Scope(
        "uneven",
        "a max_model_len that is not whole blocks",
        3,
        limits=SOME_LIMITS,
        config=(("max_model_len", 15),),
    ),
    Scope(
        "sequential",
        "without interleaving",
        3,
        SOME_LENGTHS,
        SOME_LIMITS,
        config=(("interleave", False),),
    ),
    Scope(
        "pool",
        "a pool of 8 blocks, with clients that give up",
        3,
        SOME_LENGTHS,
        (12, 20, 40),
        "alone",
        (("num_blocks", 8),),
        ("sound", "documented", "2.5.2"),
    ),
    Scope(
        "large pool",
        "a pool that cannot run out",
        2,
        SOME_LENGTHS,
        (12, 20, 40),
        "alone",
        (("num_blocks", 28),),
        ("2.1.2",),
    ),
    Scope(
        "cache",
        "prefix caching: prompts that begin alike",
        3,
        A_CHUNK_AND_MORE,
        (40,),
        "alone",
        (("prefix_caching", True),),
    ),
    Scope(
        "small cache",
        "prefix caching in a pool of 8 blocks",
        3,
        A_CHUNK_AND_MORE,
        (40,),
        config=(("prefix_caching", True), ("num_blocks", 8)),
        revisions=("sound", "documented", "2.5.2"),
    ),
    Scope(
        "no pausing",
        "pausing off",
        3,
        SOME_LENGTHS,
        SOME_LIMITS,
        config=(("pausing", False),),
        revisions=("2.5.2",),
    ),
    Scope(
        "long first",
        "the longest output goes on",
        3,
        limits=SOME_LIMITS,
        config=(("long_output_priority", True),),
        revisions=("2.5.2",),
    ),
)

# What a fault has to show itself in: a few seconds each, the cheapest first.
CHECKUP = (
    Scope("two", "two requests, clients that give up", 2, SOME_LENGTHS, (12, 20, 28), "alone"),
    Scope("trio", "three that live long", 3, tuple(lengths((1, 3), (3, 6))), (40,)),
    Scope("slots", "fewer slots", 3, SOME_LENGTHS, (12, 40), config=(("max_num_seqs", 2),)),
    Scope("even", "every length", 2, limits=(12, 20, 28)),
    Scope(
        "sequential",
        "without interleaving",
        2,
        SOME_LENGTHS,
        (40,),
        config=(("interleave", False),),
        revisions=("2.1.2",),
    ),
    Scope(
        "uneven",
        "max_model_len not whole blocks",
        2,
        limits=(20, 40),
        config=(("max_model_len", 15),),
    ),
    Scope(
        "no pausing",
        "pausing off",
        2,
        limits=(60,),
        config=(("pausing", False),),
        revisions=("2.5.2",),
    ),
    Scope(
        "uneven cache",
        "prefix caching, max_model_len not whole blocks",
        2,
        SHARED,
        (40,),
        config=(("prefix_caching", True), ("max_model_len", 13)),
    ),
    replace(named("pool"), requests=2),
    replace(named("cache"), requests=2, menu=SHARED, limits=(16, 40)),
    Scope("three", "three requests", 3, SOME_LENGTHS, (12, 28), "alone"),
    replace(named("pool"), aborts="none"),
    replace(named("cache"), menu=SHARED),
)
