"""A mutant of the nano-vLLM model for each rule of the catalogue."""

from typing import Any

from ....model.nano_vllm import block_manager, documented, scheduler
from ..content import HIT_IN_REVERSE, nothing_found
from ..faulty_targets import (
    RefusesLongPrompts,
    ShowsLittle,
    ShowsNoProgress,
    ShowsNothingComputed,
    TakesForEver,
)
from ..mutant import Mutant, Plant, release_with, replaced
from . import block_changes, changes

# Release 0.2.0 bounds a step by max_num_seqs, not requests that run.
BROKEN_BY_0_2_0 = frozenset({"NAN-R40", "NAN-R04"})


def mutant(name: str, rule: str, plant: Plant = lambda stack: None, **more: Any) -> Mutant:
    """One that is held to the deck, unless it says otherwise."""
    return Mutant(name, rule, plant, **{"revision": "documented", "system": "nano_vllm", **more})


def in_scheduler(name: str, make: changes.Make) -> Plant:
    """A function of the scheduler with a fault."""
    return replaced(scheduler, name, make)


def in_deck(name: str, make: changes.Make) -> Plant:
    """A function of the decision as the deck has it with a fault."""
    return replaced(documented, name, make)


def in_blocks(name: str, make: changes.Make) -> Plant:
    """A function of the block manager with a fault."""
    return replaced(block_manager, name, make)


EVERY_SYSTEM = (
    mutant("crashes", "ALL-R01", in_deck("schedule", changes.crash_on_third_running)),
    mutant("does not answer", "ALL-R02", target=TakesForEver),
    mutant(
        "an abort loses another",
        "ALL-R03",
        in_scheduler("abort", changes.abort_loses_a_neighbour),
        alone=True,
    ),
    mutant("a token more", "ALL-R04", in_scheduler("postprocess", changes.one_token_more)),
    mutant(
        "never ends while others wait",
        "ALL-R05",
        in_scheduler("postprocess", changes.last_token_again(True)),
        target=ShowsLittle,
        alone=True,
    ),
    mutant(
        "never ends when no request waits",
        "ALL-R06",
        in_scheduler("postprocess", changes.last_token_again(False)),
        target=ShowsLittle,
        alone=True,
    ),
    mutant(
        "preempts another",
        "ALL-R07",
        target=release_with(in_deck("preempt", block_changes.victim_from_the_middle)),
        revision="0.2.0",
        alone=True,
    ),
    mutant("found by length", "ALL-R08", in_blocks("prefix_hit", block_changes.found_by_length)),
    mutant("a block is lost", "ALL-R09", in_blocks("deallocate", block_changes.last_block_stays)),
    mutant("goes in circles", "ALL-R10", target=ShowsNoProgress),
    mutant("hits in reverse", "ALL-R11", HIT_IN_REVERSE),
    mutant("refuses long prompts", "ALL-R12", target=RefusesLongPrompts),
    mutant("shows nothing computed", "ALL-R13", target=ShowsNothingComputed),
)

ROWS = (
    mutant("prefill and decode", "NAN-R11", in_deck("schedule", changes.both_phases), alone=True),
    mutant(
        "twice the budget",
        "NAN-R08",
        in_deck(
            "prefill",
            changes.with_config(max_num_batched_tokens=lambda c: 2 * c.max_num_batched_tokens),
        ),
    ),
    mutant(
        "a slot more",
        "NAN-R40",
        in_deck("prefill", changes.with_config(max_num_seqs=lambda c: c.max_num_seqs + 1)),
    ),
    mutant("cut to a block", "NAN-R12", in_deck("prefill", changes.cut_to_a_block), alone=True),
    mutant("goes past the head", "NAN-R07", in_deck("prefill", changes.passes_over)),
    mutant("decodes first", "NAN-R10", in_deck("schedule", changes.decodes_first)),
    mutant("a block short", "NAN-R09", in_deck("fits", changes.one_block_short)),
    mutant("two tokens at once", "NAN-R14", in_deck("decode", changes.two_tokens)),
    mutant("the third has no turn", "NAN-R04", in_deck("decode", changes.last_is_passed_by)),
    mutant(
        "the last but one is preempted",
        "NAN-R19",
        in_deck("preempt", block_changes.victim_from_the_middle),
        alone=True,
    ),
    mutant(
        "preempts for a reserve",
        "NAN-R19",
        in_blocks("can_append", block_changes.a_block_in_reserve),
    ),
    mutant("preempts two for one", "NAN-R19", in_deck("preempt", block_changes.two_for_one)),
    mutant("keeps a block", "NAN-R21", in_deck("preempt", block_changes.victim_keeps_a_block)),
    mutant(
        "preempted to the back",
        "NAN-R22",
        in_deck("preempt", block_changes.victim_to_the_back),
    ),
    mutant(
        "arrives in front",
        "NAN-R06",
        in_scheduler("arrive", block_changes.arrives_in_front),
        alone=True,
    ),
    mutant("back in reverse", "NAN-R15", in_deck("decode", block_changes.reversed_running)),
    mutant(
        "a token short",
        "NAN-R23",
        in_deck("admitted", block_changes.a_token_short),
        alone=True,
    ),
    mutant(
        "no token at a border",
        "NAN-R13",
        in_scheduler("caught_up", block_changes.no_token_at_a_border),
        alone=True,
    ),
    mutant(
        "the head holds a block",
        "NAN-R03",
        in_deck("decode", block_changes.head_holds_a_block),
        alone=True,
    ),
    mutant("two blocks at a border", "NAN-R17", in_blocks("may_append", block_changes.two_blocks)),
    mutant(
        "written to the first block",
        "NAN-R27",
        in_scheduler("slot_blocks", block_changes.first_block_written),
    ),
    mutant(
        "shared by length",
        "NAN-R29",
        in_blocks("prefix_hit", block_changes.found_by_length),
        alone=True,
    ),
    mutant(
        "the last block is a hit",
        "NAN-R35",
        in_blocks("prefix_hit", block_changes.last_block_found),
    ),
    mutant("no cache at all", "NAN-R34", in_blocks("prefix_hit", nothing_found)),
    mutant(
        "hits inside a block",
        "NAN-R32",
        in_blocks("allocate", block_changes.hit_of_a_token_more),
        alone=True,
    ),
)

MUTANTS = EVERY_SYSTEM + ROWS
