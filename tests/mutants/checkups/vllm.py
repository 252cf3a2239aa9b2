"""The scopes in which every fault planted in vLLM must show: a few seconds each, the cheapest
first."""

from schedproof.solver.exploration.scope import lengths
from schedproof.solver.vllm.space import (
    AHEAD,
    ALTERNATING,
    BY_PRIORITY,
    CACHES,
    EITHER,
    FAST,
    FEW_LENGTHS,
    FIRST_CHUNK,
    LOADS,
    SHARED,
    SOME_LENGTHS,
    STAGES,
    Scope,
    loaded,
    ranked,
)

# A chunk of three tokens ends inside a block.
ODD_CHUNKS = (("long_prefill_token_threshold", 3), ("max_num_batched_tokens", 6))
CHECKUP = (
    Scope("two", "two requests, clients that give up", 2, SOME_LENGTHS, (3, 4), "alone"),
    Scope(
        "slots",
        "two slots, only the first chunk must fit",
        3,
        SOME_LENGTHS[::2],
        (3, 4),
        config=(FIRST_CHUNK, ("max_num_seqs", 2)),
    ),
    Scope("odd chunks", "chunks of three tokens", 2, SOME_LENGTHS, (4,), config=ODD_CHUNKS),
    Scope(
        "whole prompts",
        "chunking off",
        2,
        SOME_LENGTHS,
        (4,),
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope("watermark", "a block kept free", 2, SOME_LENGTHS, (3, 4), config=(("watermark", 0.3),)),
    Scope(
        "priority", "two priorities", 2, ranked(SOME_LENGTHS, (0, 1)), (3, 4), config=(BY_PRIORITY,)
    ),
    Scope("cache", "prompts that begin alike", 2, SHARED, (3, 5), "alone", (CACHES,)),
    Scope(
        "odd cache",
        "the same, in chunks that end inside a block",
        2,
        SHARED,
        (4,),
        config=(CACHES, *ODD_CHUNKS),
    ),
    Scope(
        "four",
        "four slots",
        4,
        FEW_LENGTHS,
        (5,),
        config=(("max_num_seqs", 4), ("max_num_batched_tokens", 6)),
    ),
    Scope("three", "three requests", 3, SOME_LENGTHS, (4, 5)),
    Scope(
        "important",
        "three of two priorities, only the first chunk must fit",
        3,
        ranked(SOME_LENGTHS[1::3], (0, 1)),
        (6,),
        config=(BY_PRIORITY, FIRST_CHUNK),
    ),
    Scope(
        "important slots",
        "the same for two slots",
        3,
        ranked(SOME_LENGTHS[1::3], (0, 1)),
        (6,),
        config=(BY_PRIORITY, FIRST_CHUNK, ("max_num_seqs", 2)),
    ),
    Scope("three alike", "three prompts that begin alike", 3, ALTERNATING, (4,), config=(CACHES,)),
    Scope(
        "important cache",
        "the same with two priorities",
        3,
        ranked(ALTERNATING[::2], (0, 1)),
        (4,),
        config=(BY_PRIORITY, CACHES),
    ),
    Scope("ahead", "two steps in flight", 2, SOME_LENGTHS, (3, 4), "alone", (AHEAD,)),
    Scope(
        "fast", "two steps in flight, and a fast worker", 2, FEW_LENGTHS, (3,), config=(AHEAD, FAST)
    ),
    Scope("stages", "a pipeline of three stages", 3, FEW_LENGTHS, (3, 4), config=(STAGES,)),
    Scope("loads", "a connector", 2, loaded(FEW_LENGTHS, EITHER), (3, 4), "alone", (LOADS,)),
    Scope(
        "three loads",
        "three with a connector",
        3,
        loaded(FEW_LENGTHS, EITHER[::2]),
        (4,),
        config=(LOADS,),
    ),
    Scope(
        "loads ahead",
        "a connector and two steps in flight",
        2,
        loaded(FEW_LENGTHS, EITHER),
        (3, 4),
        "alone",
        (LOADS, AHEAD),
    ),
    Scope(
        "loads in part",
        "a connector that has a part, only what is loaded must fit",
        2,
        loaded(tuple(lengths((1, 6), (1,))), EITHER[1:], (0, 1)),
        (3,),
        config=(LOADS, FIRST_CHUNK, BY_PRIORITY),
    ),
    Scope(
        "important loads",
        "three of two priorities with a connector",
        3,
        loaded(FEW_LENGTHS[2:], EITHER[::2], (0, 1)),
        (4,),
        config=(LOADS, BY_PRIORITY),
    ),
)
