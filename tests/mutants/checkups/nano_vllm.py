"""The scopes in which every fault planted in nano-vLLM must show: a few seconds each, the cheapest
first."""

from schedproof.solver.nano_vllm.space import FEW_LENGTHS, IN_CHUNKS, SHARED, SOME_LENGTHS, Scope

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
        "prompts that begin alike, in chunks of three tokens, with clients that give up",
        2,
        SHARED[::2],
        (4,),
        "alone",
        (("max_num_batched_tokens", 3),),
        IN_CHUNKS,
    ),
    Scope("four", "four sequences", 4, FEW_LENGTHS, (4,)),
)
