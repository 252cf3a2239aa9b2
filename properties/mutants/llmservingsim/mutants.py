"""A mutant of the LLMServingSim models for each rule of the catalogue."""

from typing import Any

from ....model.llmservingsim import documented, head, kv_cache, scheduler
from ....model.llmservingsim.config import LlmServingSimConfig
from ..content import HIT_IN_REVERSE, nothing_found
from ..faulty_targets import (
    RefusesLongPrompts,
    ShowsLittle,
    ShowsNoProgress,
    ShowsNothingComputed,
    TakesForEver,
)
from ..mutant import Mutant, Plant, release_with, replaced, together
from . import batch_changes, changes


def by_the_page(name: str, rule: str, plant: Plant = lambda stack: None, **more: Any) -> Mutant:
    """One that is held to the page."""
    return Mutant(name, rule, plant, revision="documented", system="llmservingsim", **more)


def at_head(name: str, rule: str, plant: Plant = lambda stack: None, **more: Any) -> Mutant:
    """One that is held to the code at HEAD."""
    return Mutant(name, rule, plant, revision="head", system="llmservingsim", **more)


def in_page(name: str, make: changes.Make) -> Plant:
    """A function of the page's decision with a fault."""
    return replaced(documented, name, make)


def in_head(name: str, make: changes.Make) -> Plant:
    """A function of HEAD's decision with a fault."""
    return replaced(head, name, make)


def in_step(name: str, make: changes.Make) -> Plant:
    """A function of both revisions' step with a fault."""
    return replaced(scheduler, name, make)


def in_cache(name: str, make: changes.Make) -> Plant:
    """A function of the KV cache with a fault."""
    return replaced(kv_cache, name, make)


def in_config(name: str, make: changes.Make) -> Plant:
    """A number of the configuration that is read otherwise."""
    return replaced(LlmServingSimConfig, name, make)


EVERY_SYSTEM = (
    at_head(
        "crashes with three running",
        "ALL-R01",
        in_head("admit_waiting", changes.crash_on_third_running),
    ),
    by_the_page("does not answer with three running", "ALL-R02", target=TakesForEver),
    by_the_page(
        "an abort loses a neighbour",
        "ALL-R03",
        in_step("abort", changes.abort_loses_a_neighbour),
    ),
    by_the_page("one token too many", "ALL-R04", in_step("add_done", changes.longer(1))),
    by_the_page(
        "goes on while others wait",
        "ALL-R05",
        in_step("add_done", changes.last_token_again(True)),
        target=ShowsLittle,
        alone=True,
    ),
    at_head(
        "goes on when no request waits",
        "ALL-R06",
        in_step("add_done", changes.last_token_again(False)),
        target=ShowsLittle,
        alone=True,
    ),
    at_head(
        "another release gives way otherwise",
        "ALL-R07",
        target=release_with(in_head("victim", batch_changes.the_last_but_one)),
        alone=True,
    ),
    by_the_page(
        "found before it is full",
        "ALL-R08",
        in_cache("hold", changes.found_before_full),
    ),
    by_the_page("a block is not given back", "ALL-R09", in_cache("free", changes.last_block_stays)),
    by_the_page("runs in circles", "ALL-R10", target=ShowsNoProgress, alone=True),
    at_head("hits in reverse", "ALL-R11", HIT_IN_REVERSE),
    at_head("refuses long prompts", "ALL-R12", target=RefusesLongPrompts),
    at_head("shows nothing computed", "ALL-R13", target=ShowsNothingComputed),
)

ROWS = (
    by_the_page(
        "caches all the same",
        "LSS-R03",
        together(
            in_cache("prefix_hit", changes.cache_all_the_same),
            in_cache("hold", changes.cache_all_the_same),
        ),
        alone=True,
    ),
    by_the_page("one token over", "LSS-R06", in_page("cap", changes.one_token_over)),
    at_head(
        "requests that join have a budget of their own",
        "LSS-R06",
        in_head("admit_waiting", changes.budget_of_their_own),
    ),
    by_the_page("a slot too many", "LSS-R04", in_config("has_slot", changes.slots(1))),
    at_head("a slot too many at HEAD", "LSS-R04", in_config("has_slot", changes.slots(1))),
    by_the_page("no threshold", "LSS-R07", in_config("capped", changes.no_threshold)),
    by_the_page(
        "two tokens to decode",
        "LSS-R13",
        in_page("need", changes.needs(changes.two_to_decode)),
        alone=True,
    ),
    at_head(
        "a token for every chunk",
        "LSS-R32",
        in_step("add_done", changes.emits(lambda one: True)),
    ),
    at_head(
        "no token when a block is full",
        "LSS-R32",
        in_step(
            "add_done",
            changes.emits(
                lambda one: (
                    one.num_uncomputed_tokens == 0 and (one.computed % 4 > 0 or one.generated > 0)
                )
            ),
        ),
    ),
    by_the_page(
        "prefills are not put first", "LSS-R18", in_page("queue", changes.prefills_not_first)
    ),
    by_the_page("decodes first", "LSS-R08", in_page("queue", changes.decodes_first)),
    by_the_page("prefills alone", "LSS-R17", in_page("served", changes.prefills_alone)),
    by_the_page(
        "nothing is promised", "LSS-P01", in_cache("promised", batch_changes.nothing_promised)
    ),
    by_the_page(
        "the prompt alone must fit",
        "LSS-P01",
        in_cache("admit", batch_changes.room_for(lambda one, after: one.prompt)),
    ),
    by_the_page("others may start", "LSS-P02", in_page("starting", batch_changes.others_may_start)),
    by_the_page(
        "no cap is one", "LSS-R05", in_config("has_slot", changes.no_cap_is_one), alone=True
    ),
    at_head("no cap is one at HEAD", "LSS-R05", in_config("has_slot", changes.no_cap_is_one)),
    by_the_page(
        "who gets nothing is the last", "LSS-R09", in_page("served", batch_changes.ends_the_batch)
    ),
    at_head("a slot less", "LSS-P03", in_config("has_slot", changes.slots(-1))),
    by_the_page("a slot less by the page", "LSS-P03", in_config("has_slot", changes.slots(-1))),
    at_head(
        "the last but one gives way", "LSS-R30", in_head("victim", batch_changes.the_last_but_one)
    ),
    at_head(
        "admits in a step that preempted",
        "LSS-R30",
        in_head("advance_running", batch_changes.admit_all_the_same),
        alone=True,
    ),
    at_head(
        "gives way to who waits",
        "LSS-R30",
        in_head("admit_waiting", batch_changes.preempts_to_admit),
    ),
    at_head("keeps a block", "LSS-R30", in_head("preempt", batch_changes.keeps_its_blocks)),
    at_head(
        "the first chunk alone must fit",
        "LSS-R31",
        in_cache("admit", batch_changes.room_for(lambda one, after: after)),
    ),
    by_the_page("no cache at all", "LSS-R02", in_cache("prefix_hit", nothing_found)),
    at_head("no cache at HEAD", "LSS-R02", in_cache("prefix_hit", nothing_found), alone=True),
    at_head("waits behind all others", "LSS-R34", in_head("preempt", batch_changes.put_behind)),
    at_head(
        "the shorter one first", "LSS-R34", in_head("admit_waiting", batch_changes.shorter_first)
    ),
    at_head(
        "the last token is cached, too",
        "LSS-R33",
        in_cache("prefix_hit", batch_changes.whole_prompt_hit),
    ),
    by_the_page(
        "newcomers get half", "LSS-R11", in_page("starting", batch_changes.newcomers_get_half)
    ),
    by_the_page(
        "hits are subtracted twice",
        "LSS-R11",
        in_page("starting", batch_changes.hit_subtracted_twice),
    ),
    at_head(
        "cuts all the same",
        "LSS-R11",
        in_head("admit_waiting", changes.cuts_all_the_same),
    ),
    by_the_page(
        "half of the rest", "LSS-R12", in_page("need", changes.needs(changes.half_of_the_rest))
    ),
    by_the_page(
        "hits are not counted", "LSS-R16", in_step("observe", batch_changes.hits_not_counted)
    ),
    by_the_page(
        "hits are not reported", "LSS-R23", in_step("add_done", batch_changes.hits_not_reported)
    ),
    at_head(
        "the first token is not reported",
        "LSS-R24",
        in_step("add_done", batch_changes.first_token_not_reported),
    ),
)

MUTANTS = (*EVERY_SYSTEM, *ROWS)
