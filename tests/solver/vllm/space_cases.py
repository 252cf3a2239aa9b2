"""What tests/solver/test_spaces.py needs to know of vLLM."""

from schedproof.model.vllm import connector, in_flight, kv_cache, queue, scheduler
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.vllm import key
from schedproof.solver.vllm.key import Key
from schedproof.solver.vllm.space import (
    AHEAD,
    EITHER,
    LOADS,
    SHARED,
    STAGES,
    Scope,
    VllmModels,
    with_loads,
    with_priorities,
)

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
POOLS = (3, 4)
CACHES = ("enable_prefix_caching", True)
PRIORITY = ("policy", "priority")
SMALL = [
    Scope("lengths", "", 2, FEW, (2, 3, 4)),
    Scope("aborts", "", 2, FEW, (3,), "any"),
    Scope("threshold", "", 2, FEW, POOLS, config=(("long_prefill_token_threshold", 2),)),
    Scope("first chunk", "", 2, FEW, POOLS, config=(("reserve_full_isl", False),)),
    Scope(
        "whole prompts",
        "",
        2,
        FEW,
        POOLS,
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope("watermark", "", 2, FEW, (4,), config=(("watermark", 0.3),)),
    Scope("priority", "", 2, with_priorities(FEW[1::2], (0, 1)), (3,), "alone", (PRIORITY,)),
    Scope("cache", "", 2, SHARED[::3], (3, 4), "alone", (CACHES,)),
    Scope(
        "important cache",
        "",
        2,
        with_priorities(SHARED[1::4], (0, 1)),
        (4,),
        config=(CACHES, PRIORITY),
    ),
    Scope("slots", "", 3, FEW[1::2], (3,), config=(("max_num_seqs", 2),)),
    Scope("ahead", "", 2, FEW, (3,), "any", (AHEAD,)),
    Scope("stages", "", 3, FEW[1::2], (3,), config=(STAGES,)),
    Scope("loads", "", 2, with_loads(FEW[1::4], EITHER), (3,), "alone", (LOADS,)),
    Scope("three loads", "", 3, with_loads(FEW[5:], EITHER[::2]), (4,), config=(LOADS,)),
    Scope("loads ahead", "", 2, with_loads(FEW[2:5:2], EITHER), (3,), "alone", (LOADS, AHEAD)),
]
PINNED = {
    ("documented", "lengths"): (277, 605, 10),
    ("documented", "aborts"): (96, 545, 10),
    ("documented", "threshold"): (306, 645, 11),
    ("documented", "first chunk"): (235, 520, 10),
    ("documented", "whole prompts"): (226, 524, 9),
    ("documented", "watermark"): (112, 252, 10),
    ("documented", "priority"): (260, 1267, 11),
    ("documented", "cache"): (582, 938, 12),
    ("documented", "important cache"): (755, 1162, 14),
    ("documented", "slots"): (203, 495, 13),
    ("documented", "ahead"): (206, 966, 12),
    ("documented", "stages"): (1012, 1825, 24),
    ("documented", "loads"): (247, 1049, 8),
    ("documented", "three loads"): (313, 675, 14),
    ("documented", "loads ahead"): (346, 1255, 8),
}
# Scopes in which it matters what a wrong key leaves out.
LEFT = Scope("left", "", 2, tuple(lengths((1, 2, 3), (1, 2, 5))), (3,))
COMPUTED = Scope(
    "computed",
    "",
    2,
    tuple(lengths((1, 2, 4, 5), (1, 4))),
    (3,),
    config=(("block_size", 4), ("max_num_batched_tokens", 3)),
)
THREE = Scope("three", "", 3, SHARED[::3], (4,), config=(CACHES,))


def eldest_first(original):
    return lambda config, running: running[0]


def most_important_first(original):
    return lambda config, running: min(running, key=queue.importance)


def forgets_what_it_said(original):
    def preempt(config, plan, victim):
        return original(config, plan, victim._replace(generated=0) if victim.generated else victim)

    return preempt


CASES = Cases(
    small=SMALL,
    pinned=PINNED,
    models=VllmModels,
    account="id prompt max_tokens priority arrival computed emitted prefix_hit prefill_steps"
    " regenerated recompute_from preemptions ended tokens_in_flight load_left parked_since"
    " ended_at",
    rest=lambda state, history: repr((state.in_flight, history.last, history.system_state.flights)),
    forgotten={"in_flight": ()},
    shown=rows_and_queue,
    smaller=0.7,
    # Places in `key._as_numbers`: known tokens, computed.
    wrong={
        **of_the_explorer("documented", SMALL[0]),
        "known": Wrong("documented", SMALL[0], key, "_as_numbers", without(0)),
        "computed": Wrong("documented", COMPUTED, key, "_as_numbers", without(1)),
        "left": Wrong("documented", LEFT, key, "tokens_left", always(())),
        "cached": Wrong(
            *("documented", THREE, Key, "_with_contents"), lambda original: Key._by_length
        ),
        "flights": Wrong(
            *("documented", scope_named(SMALL, "stages"), key, "in_flight_key"), always(())
        ),
        "loads": Wrong("documented", scope_named(SMALL, "loads"), key, "_in_flight", always(())),
    },
    in_one_go=[("documented", scope_named(SMALL, name)) for name in ("lengths", "cache")],
    order=("documented", 3),
    faults={
        "the eldest is preempted": Fault(
            *(queue, "victim", eldest_first), *("documented", "lengths", "V1CP-R13")
        ),
        "the most important": Fault(
            *(queue, "victim", most_important_first), *("documented", "priority", "V1CP-R14")
        ),
        "a block that is not there": Fault(
            *(kv_cache, "fits", one_block_more), *("documented", "first chunk", "V1-R14")
        ),
        "forgets what it said": Fault(
            *(scheduler, "preempt", forgets_what_it_said), *("documented", "lengths", "ALL-R04")
        ),
        # A request that needs a second chunk is preempted, and begins again.
        "no request grows": Fault(
            *(kv_cache, "grow", always(None)), *("documented", "threshold", "ALL-R06")
        ),
        # What vllm 0.18.0 to 0.22.1 do: two parked requests wait for each other's blocks, for ever.
        "loads take all": Fault(
            *(connector, "promised_blocks", always(0)), *("documented", "loads ahead", "ALL-R10")
        ),
        "too early": Fault(
            *(in_flight, "is_still_computed", always(False)), *("documented", "stages", "V1-R10")
        ),
    },
)
