"""What tests/solver/test_spaces.py needs to know of nano-vLLM."""

from schedproof.model.nano_vllm import block_manager, documented, scheduler
from schedproof.model.nano_vllm.state import Sequence
from schedproof.solver.exploration.canonical_names import CanonicalNames
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.nano_vllm import space
from schedproof.solver.nano_vllm.space import IN_CHUNKS, SHARED, NanoModels, Scope

from ..space_cases import (
    Cases,
    Fault,
    Wrong,
    always,
    of_the_explorer,
    one_block_more,
    rows_and_queue,
    scope_named,
    without,
)

FEW = tuple(lengths((1, 3, 4), (1, 4)))
WIDE = ("block_size", 4)
BUDGET = ("max_num_batched_tokens", 3)
SMALL = [
    Scope("lengths", "", 2, FEW, (3, 4)),
    Scope("aborts", "", 2, FEW[1::2], (3,), "any", revisions=("0.2.0",)),
    Scope("slots", "", 3, tuple(lengths((1, 4), (1, 2))), (3,), config=(("max_num_seqs", 2),)),
    # Early ends are left out of steps in which nothing else happens: the menu has them all.
    Scope(
        "wide blocks",
        "",
        2,
        tuple(lengths((1, 4), (1, 3, 4, 5))),
        (2,),
        config=(WIDE,),
        revisions=("documented",),
    ),
    Scope("cache", "", 2, SHARED[::3], (4, 5)),
    Scope("chunks", "", 2, FEW, (3, 4), config=(BUDGET,), revisions=IN_CHUNKS),
    Scope("cache in chunks", "", 2, SHARED[::3], (4,), "alone", (BUDGET,), IN_CHUNKS),
]
THREE = Scope("three", "", 3, SHARED[1::3], (4,))
PINNED = {
    ("documented", "lengths"): (976, 1281, 12),
    ("documented", "slots"): (503, 794, 12),
    ("documented", "wide blocks"): (427, 559, 14),
    ("documented", "cache"): (536, 736, 10),
    ("0.2.0", "lengths"): (976, 1281, 12),
    ("0.2.0", "aborts"): (788, 1468, 12),
    ("0.2.0", "slots"): (506, 799, 12),
    ("0.2.0", "cache"): (566, 756, 10),
    ("0.2.0", "chunks"): (1047, 1348, 15),
    ("0.2.0", "cache in chunks"): (1275, 2312, 12),
}


def forgets_what_it_said(original):
    return lambda number: original(number)._replace(generated=0)


def keeps_its_last_block(original):
    def deallocate(pool, request, *rest):
        return original(pool, request._replace(blocks=request.blocks[:1]), *rest)

    return deallocate


def a_token_of_every_chunk(original):
    return lambda request: request.computed > 0


def always_quiet(original):
    return lambda models, state: not state.waiting


LENGTHS, BLOCKS = (scope_named(SMALL, name) for name in ("lengths", "wide blocks"))
CASES = Cases(
    small=SMALL,
    pinned=PINNED,
    models=NanoModels,
    account="id prompt max_tokens arrival computed emitted prefix_hit prefill_steps"
    " regenerated recompute_from preemptions ended",
    shown=rows_and_queue,
    smaller=0.85,
    # Places in `space._member`: what may still be asked, computed, generated, left. Of these three
    # one says what the others do, and so do blocks and their contents while they are small.
    wrong={
        **of_the_explorer("documented", LENGTHS),
        "candidates": Wrong("documented", LENGTHS, space, "_member", without(1)),
        "computed": Wrong("documented", BLOCKS, space, "_member", without(3, 4, 7)),
        "contents of blocks": Wrong("documented", THREE, CanonicalNames, "pool", always(())),
        "quiet": Wrong("documented", BLOCKS, NanoModels, "quiet", always_quiet),
    },
    in_one_go=[
        ("documented", LENGTHS),
        ("documented", scope_named(SMALL, "cache")),
        ("0.2.0", scope_named(SMALL, "chunks")),
    ],
    order=("documented", 3),
    # Requests that have ended are numbered as they came, so that of two ends that mirror each other
    # the first one met is counted, or both.
    same_states=False,
    # Release 0.2.0 bounds the sequences of a step by max_num_seqs, not those that run.
    breaks={("0.2.0", "slots"): {"NAN-R40", "NAN-R04"}},
    faults={
        "forgets what it said": Fault(
            *(Sequence, "rewound", forgets_what_it_said), *("documented", "lengths", "ALL-R04")
        ),
        "a block that is not there": Fault(
            *(documented, "fits", one_block_more), *("documented", "lengths", "NAN-R09")
        ),
        "keeps a block": Fault(
            *(block_manager, "deallocate", keeps_its_last_block),
            *("documented", "aborts", "ALL-R09"),
        ),
        "a token of every chunk": Fault(
            *(scheduler, "caught_up", a_token_of_every_chunk), *("0.2.0", "chunks", "NAN-R13")
        ),
    },
)
