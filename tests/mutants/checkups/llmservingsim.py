"""The scopes in which every fault planted in LLMServingSim must show: a few seconds each, the
cheapest first."""

from schedproof.solver.llmservingsim.space import (
    ALTERNATING,
    CACHES,
    FEW_LENGTHS,
    FIRST,
    NO_CAP,
    ODD_CHUNKS,
    PAGE,
    SHARED,
    SOME_LENGTHS,
    WHOLE,
    Scope,
)

CHECKUP = (
    Scope("two", "two requests, clients that give up", 2, SOME_LENGTHS, (3, 5), "alone"),
    Scope("alike", "two requests with shared prompts, without a cache", 2, SHARED[:6], (6,)),
    Scope("slots", "two slots", 3, FEW_LENGTHS, (3, 6), config=(("max_num_seqs", 2),)),
    Scope("no cap", "any number of requests", 3, FEW_LENGTHS, (4, 9), config=(NO_CAP,)),
    Scope(
        "few tokens",
        "a budget of two tokens",
        3,
        FEW_LENGTHS,
        (6,),
        config=(("max_num_batched_tokens", 2),),
    ),
    Scope("odd chunks", "chunks of three tokens", 2, SOME_LENGTHS, (4, 8), config=ODD_CHUNKS),
    Scope("whole prompts", "chunking off", 3, SOME_LENGTHS[1::2], (4, 9), config=WHOLE),
    Scope(
        "prefills first",
        "prefills are prioritised",
        3,
        SOME_LENGTHS[1::2],
        (8,),
        config=(FIRST,),
        revisions=PAGE,
    ),
    Scope("cache", "prompts that begin alike", 2, SHARED, (4,), "alone", (CACHES,)),
    Scope(
        "odd cache",
        "the same, in chunks that end inside a block",
        2,
        SHARED,
        (4,),
        config=(CACHES, *ODD_CHUNKS),
    ),
    Scope("three", "three requests", 3, SOME_LENGTHS, (4, 5)),
    Scope("three alike", "three prompts that begin alike", 3, ALTERNATING, (5,), config=(CACHES,)),
    Scope(
        "four",
        "four slots",
        4,
        FEW_LENGTHS,
        (5, 9),
        config=(("max_num_seqs", 4), ("max_num_batched_tokens", 6)),
    ),
)
