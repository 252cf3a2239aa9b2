"""A mutant of the Spyre model for each rule of the catalogue."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from ....model import prefix
from ....model.spyre import (
    admission,
    blocks,
    forward,
    padding,
    pausing,
    revision,
    scheduler,
    tkv,
    volumetric,
)
from ....model.spyre.state import State
from ..content import HIT_IN_REVERSE
from ..faulty_targets import (
    RefusesLongPrompts,
    ShowsLittle,
    ShowsNoProgress,
    ShowsNothingComputed,
    TakesForEver,
    with_default,
)
from ..mutant import Mutant, Plant, replaced, together
from . import layout as layout
from . import queue as queue


def flags(**changes: Any) -> Plant:
    """Other choices in every revision."""

    def plant(stack: ExitStack) -> None:
        changed = {key: replace(rev, **changes) for key, rev in revision.REVISIONS.items()}
        stack.enter_context(mock.patch.dict(revision.REVISIONS, changed))

    return plant


def projection(name: str) -> Plant:
    """Another formula for the volumetric check of every revision."""
    return flags(projection=volumetric.FORMULAS[name])


def observed(change: Callable[[Any, dict[str, Any]], None]) -> Plant:
    """Change what is reported of a step: (config, observation)."""

    def make(original: Any) -> Any:
        def observe(*args: Any) -> dict[str, Any]:
            seen: dict[str, Any] = original(*args)
            change(args[0], seen)
            return seen

        return observe

    return replaced(scheduler, "observe", make)


def decided(change: Callable[[Any, State, Any], Any]) -> Plant:
    """Change what is decided: (config, state, decision) -> decision."""

    def make(original: Any) -> Any:
        def decide(config: Any, rev: Any, state: State) -> Any:
            after, decision = original(config, rev, state)
            return after, change(config, after, decision)

        return decide

    return replaced(scheduler, "decide", make)


# Release 2.5.2 without its faults: the rules that only it has must hold on something.
REPAIRED_2_5_2 = flags(
    stale_tkv=False,
    prompt_is_tkv=False,
    checks_once=False,
    counts_ahead=False,
    leaks_reservations=False,
    forgets_paused=False,
    skips_refused=False,
)
CACHED_CHUNKS_COMPUTED = together(
    replaced(blocks, "admit", layout.cached_chunks_computed), observed(layout.at_least_nothing)
)
MUTANTS = (
    Mutant("crashes with three running", "ALL-R01", decided(queue.crash_on_third_running)),
    Mutant("does not answer with three running", "ALL-R02", target=TakesForEver),
    Mutant(
        "an abort loses a neighbour",
        "ALL-R03",
        replaced(scheduler, "complete", queue.lose_waiting_request),
    ),
    Mutant("one token too many", "ALL-R04", replaced(scheduler, "complete", queue.one_token_more)),
    Mutant(
        "decodes on while others wait",
        "ALL-R05",
        replaced(scheduler, "complete", queue.never_finish(True)),
        ShowsLittle,
    ),
    Mutant(
        "decodes on when no request waits",
        "ALL-R06",
        replaced(scheduler, "complete", queue.never_finish(False)),
        ShowsLittle,
    ),
    Mutant("decides as another revision", "ALL-R07", target=queue.SoundInstead, revision="2.1.2"),
    Mutant(
        "publishes blocks before they are computed",
        "ALL-R08",
        flags(counts_ahead=True, whole_first_chunk=True),
    ),
    Mutant(
        "a block is not given back",
        "ALL-R09",
        replaced(blocks, "release", layout.block_not_given_back),
    ),
    Mutant("runs in circles", "ALL-R10", target=ShowsNoProgress),
    Mutant("hits in reverse", "ALL-R11", HIT_IN_REVERSE),
    Mutant("refuses long prompts", "ALL-R12", target=RefusesLongPrompts),
    Mutant("shows nothing computed", "ALL-R13", target=ShowsNothingComputed),
    Mutant("a second prefill starts", "SPY-R30", decided(queue.second_prefill), alone=True),
    Mutant(
        "two prompts in one step", "SPY-R13", replaced(forward, "compute_chunk", queue.prefill_two)
    ),
    Mutant(
        "prefills while one is paused",
        "SPY-R52",
        together(REPAIRED_2_5_2, replaced(admission, "may_prefill", queue.prefills_while_paused)),
        revision="2.5.2",
    ),
    Mutant("a short prompt overtakes a prefill", "SPY-R31", decided(queue.short_prompt_overtakes)),
    Mutant(
        "no interleaving",
        "SPY-R32",
        replaced(admission, "must_interleave", lambda _: lambda config, state: False),
    ),
    Mutant(
        "later chunks wait all the same",
        "SPY-R34",
        replaced(admission, "may_prefill", queue.later_chunks_wait),
        revision="2.1.2",
        known=frozenset({"SPY-R35", "ALL-R08", "ALL-R11"}),
    ),
    Mutant(
        "last come, first served",
        "SPY-R53",
        replaced(admission, "candidate", queue.last_come_first_served),
    ),
    Mutant(
        "no limit on running",
        "SPY-R36",
        replaced(
            admission,
            "satisfies_first_chunk",
            lambda _: lambda config, state: state.prefilling is None,
        ),
    ),
    Mutant("an empty system waits", "SPY-R38", decided(queue.empty_system_waits)),
    Mutant(
        "the whole prompt is a hit",
        "SPY-R55",
        replaced(prefix, "cached_blocks", layout.last_block_hit),
    ),
    Mutant("cached chunks are computed", "SPY-R54", CACHED_CHUNKS_COMPUTED),
    Mutant(
        "hits are cut short",
        "SPY-R57",
        replaced(blocks, "prefix_hit", layout.hit_cut_short),
        alone=True,
    ),
    Mutant(
        "outputs are no hits", "SPY-R60", replaced(blocks, "hold", layout.outputs_not_published)
    ),
    Mutant(
        "the whole prompt at once", "SPY-R04", replaced(padding, "next_chunk", layout.whole_prompt)
    ),
    Mutant(
        "first chunk ignores the padding",
        "SPY-R19",
        replaced(padding, "next_chunk", layout.full_first_chunk),
    ),
    Mutant(
        "single chunk left-aligned",
        "SPY-R14",
        replaced(padding, "left_padding_blocks", layout.no_padding_in_one_chunk),
    ),
    Mutant("a chunk of padding too many", "SPY-R16", observed(layout.chunk_of_padding_more)),
    Mutant(
        "padding is not block 0", "SPY-R11", replaced(forward, "written", layout.padding_elsewhere)
    ),
    Mutant(
        "cached blocks are written again",
        "SPY-R56",
        replaced(forward, "written", layout.cached_blocks_written),
    ),
    Mutant("the first token comes late", "SPY-R20", observed(layout.first_token_late), alone=True),
    Mutant(
        "no model length after a hit",
        "SPY-R59",
        replaced(admission, "fits_model_length", queue.length_forgotten(after_a_hit=True)),
    ),
    Mutant(
        "no model length",
        "SPY-R41",
        replaced(admission, "fits_model_length", queue.length_forgotten(after_a_hit=False)),
    ),
    Mutant(
        "no reservation", "SPY-R50", replaced(blocks, "fits_pool", lambda _: lambda *args: True)
    ),
    Mutant("promises outlive their request", "SPY-P02", flags(leaks_reservations=True)),
    Mutant(
        "paused longest, asked last",
        "SPY-R51",
        together(REPAIRED_2_5_2, replaced(pausing, "fairness_order", queue.fairness_reversed)),
        revision="2.5.2",
    ),
    Mutant(
        "paused for good",
        "SPY-P01",
        together(REPAIRED_2_5_2, replaced(pausing, "fairness_order", queue.fairness_reversed)),
        revision="2.5.2",
        alone=True,
    ),
    Mutant(
        "a member left out", "SPY-R22", replaced(forward, "compute_decode", queue.skip_a_member)
    ),
    Mutant("a block too few at a border", "SPY-R02", observed(layout.block_short_at_border)),
    Mutant(
        "no left padding in decode",
        "SPY-R09",
        replaced(tkv, "left_pad_blocks", layout.pads_changed(lambda pads: [0] * len(pads))),
    ),
    Mutant(
        "a block of padding for all",
        "SPY-R24",
        replaced(
            tkv, "left_pad_blocks", layout.pads_changed(lambda pads: [pad + 1 for pad in pads])
        ),
    ),
    Mutant(
        "width of the shortest",
        "SPY-R10",
        replaced(
            tkv,
            "left_pad_blocks",
            layout.pads_changed(lambda pads: [pad - max(pads, default=0) for pad in pads]),
        ),
    ),
    Mutant(
        "tkv of the last step",
        "SPY-R26",
        replaced(tkv, "max_tkv", lambda original: lambda n, b: max(original(n, b) - 1, 0)),
    ),
    Mutant(
        "no volumetric check",
        "SPY-R47",
        replaced(admission, "fits_volume", lambda _: lambda *args: True),
    ),
    # The join is named before the limit is exceeded.
    Mutant("projection of 1.10.0", "SPY-R07", projection("1.10.0"), alone=True),
    Mutant(
        "joins only the small batch",
        "SPY-R42",
        replaced(admission, "fits_volume", queue.never_joins),
    ),
    Mutant("waits instead of decoding", "SPY-R35", decided(queue.idle_when_refused)),
    Mutant("no interleaving by default", "SPY-R33", target=with_default("interleave", False)),
)
