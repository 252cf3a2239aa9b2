"""What tests/solver/test_spaces.py needs to know of Spyre."""

from dataclasses import replace

from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.spyre import space
from schedproof.solver.spyre.space import SHARED, Key, Scope, SpyreModels
from schedproof.spec.systems import SYSTEMS

from ..space_cases import Cases, Wrong, always, of_the_explorer

FEW = tuple(lengths((2, 3, 5), (2, 3)))
LIMITS = (6, 8, 11, 14, 40)
SMALL = [
    Scope("lengths", "", 2, FEW, LIMITS),
    Scope("aborts", "", 2, FEW, (8, 40), "any"),
    Scope("uneven", "", 2, FEW, LIMITS, config=(("max_model_len", 7),)),
    Scope("sequential", "", 2, FEW, LIMITS, config=(("interleave", False),)),
    Scope("slots", "", 3, tuple(lengths((3, 5), (1, 3))), (12,), config=(("max_num_seqs", 2),)),
    Scope(
        "wide blocks", "", 2, tuple(lengths((3, 9), (2, 7))), (24, 60), config=(("block_size", 4),)
    ),
    Scope("pool", "", 2, FEW, (40,), "alone", (("num_blocks", 8),)),
    Scope("cache", "", 2, SHARED[:8:3], (40,), "alone", (("prefix_caching", True),)),
]
PINNED = {
    ("sound", "lengths"): (111, 219, 11),
    ("sound", "aborts"): (130, 567, 11),
    ("sound", "slots"): (112, 203, 14),
    ("sound", "cache"): (435, 653, 12),
    ("sound", "pool"): (197, 759, 11),
    ("documented", "lengths"): (111, 218, 11),
    ("documented", "aborts"): (130, 570, 11),
    ("documented", "slots"): (109, 193, 14),
    ("documented", "cache"): (435, 653, 12),
    ("documented", "pool"): (197, 759, 11),
    ("2.1.2", "lengths"): (244, 459, 13),
    ("2.1.2", "aborts"): (319, 1082, 13),
    ("2.1.2", "slots"): (223, 402, 16),
    ("2.1.2", "cache"): (486, 749, 11),
    ("2.5.2", "lengths"): (156, 304, 11),
    ("2.5.2", "aborts"): (184, 649, 11),
    ("2.5.2", "slots"): (208, 378, 14),
    ("2.5.2", "cache"): (494, 751, 12),
    ("2.5.2", "pool"): (530, 1585, 12),
}


def all_limits_as_the_smallest(original):
    def decisions(space, state, members, inside):
        for together, emitted in original(space, state, members & -members, inside):
            yield members if together else 0, emitted

    return decisions


def without_padding(original):
    return lambda key, request, history: (0, *original(key, request, history)[2:])


def shown(step, history):
    """The tkv, and of each scheduled request its padding and its tokens after the step."""
    pads = step.left_pad_blocks or {}
    rows = sorted(
        (pads.get(name), history.live[name].computed + tokens)
        for name, tokens in step.scheduled.items()
    )
    return step.tkv, tuple(rows)


ABORTS = replace(SMALL[0], aborts="alone")
CASES = Cases(
    small=SMALL,
    pinned=PINNED,
    models=SpyreModels,
    account="id prompt max_tokens computed emitted prefill_steps ended",
    rest=lambda state, history: None,
    shown=shown,
    smaller=0.7,
    wrong={
        **of_the_explorer("documented", ABORTS),
        "limits": Wrong(
            *("documented", ABORTS, SchedulerSpace, "_decisions"), all_limits_as_the_smallest
        ),
        "decoding": Wrong("documented", ABORTS, Key, "_decoding", without_padding),
        "left": Wrong("documented", ABORTS, space, "tokens_left", always(())),
        "unstarted": Wrong("documented", ABORTS, space, "_unstarted", always(())),
    },
    in_one_go=[(revision, ABORTS) for revision in SYSTEMS["spyre"].revisions],
    order=("2.1.2", 11),
    breaks=None,
)
