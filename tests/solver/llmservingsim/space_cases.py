"""What tests/solver/test_spaces.py needs to know of LLMServingSim."""

from schedproof.model.llmservingsim import documented, head, kv_cache, scheduler
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.llmservingsim.space import SHARED, LlmServingSimModels, Scope

from ..space_cases import Cases, Fault, always, of_the_explorer, one_block_more, rows, scope_named

FEW = tuple(lengths((1, 3, 4), (1, 4)))
POOLS = (3, 4)
CACHES = ("enable_prefix_caching", True)
SMALL = [
    Scope("lengths", "", 2, FEW, (2, 3, 4)),
    Scope("aborts", "", 2, FEW, (3,), "any"),
    Scope("threshold", "", 2, FEW, POOLS, config=(("long_prefill_token_threshold", 2),)),
    Scope("few tokens", "", 2, FEW, (4,), config=(("max_num_batched_tokens", 1),)),
    Scope(
        "whole prompts",
        "",
        2,
        FEW,
        POOLS,
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope("cache", "", 2, SHARED[::3], (3, 4), "alone", (CACHES,)),
    Scope("slots", "", 3, FEW[1::2], (3,), config=(("max_num_seqs", 2),)),
    Scope("no cap", "", 3, FEW[1::4], (6,), config=(("max_num_seqs", 0),)),
    Scope(
        "prefills first",
        "",
        3,
        FEW[1::4],
        (6,),
        config=(("prioritize_prefill", True), ("max_num_seqs", 1)),
        revisions=("documented",),
    ),
]
PINNED = {
    ("documented", "lengths"): (423, 777, 11),
    ("documented", "aborts"): (147, 606, 10),
    ("documented", "threshold"): (451, 812, 12),
    ("documented", "few tokens"): (98, 166, 14),
    ("documented", "whole prompts"): (353, 668, 11),
    ("documented", "cache"): (1511, 2569, 14),
    ("documented", "slots"): (110, 232, 12),
    ("documented", "no cap"): (232, 657, 11),
    ("documented", "prefills first"): (205, 417, 12),
    ("head", "lengths"): (277, 605, 10),
    ("head", "aborts"): (96, 545, 10),
    ("head", "threshold"): (306, 645, 11),
    ("head", "few tokens"): (62, 113, 12),
    ("head", "whole prompts"): (226, 524, 9),
    ("head", "cache"): (1641, 2835, 14),
    ("head", "slots"): (203, 495, 13),
    ("head", "no cap"): (310, 915, 13),
}


def eldest_first(original):
    return lambda plan: plan.running[0]


def last_come_first_served(original):
    return lambda config, state: original(config, state)[::-1]


def doubles(original):
    def arrive(state, newcomer):
        after = original(state, newcomer)
        return after._replace(waiting=(*after.waiting, *after.waiting[-1:]))

    return arrive


def shown(step, history):
    """How many wait behind one that no request looked at makes no difference."""
    return rows(step, history), step.waiting == ()


CASES = Cases(
    small=SMALL,
    pinned=PINNED,
    models=LlmServingSimModels,
    account="id prompt max_tokens arrival computed emitted prefix_hit prefill_steps"
    " regenerated recompute_from preemptions ended",
    forgotten={"batches": 0},
    shown=shown,
    smaller=None,
    wrong=of_the_explorer("head", SMALL[0]),
    in_one_go=[
        (revision, scope_named(SMALL, name))
        for revision in ("documented", "head")
        for name in ("lengths", "cache")
    ],
    order=("documented", 3),
    faults={
        "the eldest gives way": Fault(head, "victim", eldest_first, "head", "lengths", "LSS-R30"),
        "a block that is not there": Fault(
            *(kv_cache, "fits", one_block_more), *("documented", "lengths", "LSS-P01")
        ),
        "no request gets anything": Fault(
            *(documented, "cap", always(0)), *("documented", "threshold", "ALL-R10")
        ),
        "last come, first served": Fault(
            *(documented, "queue", last_come_first_served), *("documented", "no cap", "LSS-R08")
        ),
        "twice in the line": Fault(scheduler, "arrive", doubles, "head", "lengths", "ALL-R03"),
    },
)
