"""A mutant of the vLLM model for each rule of the catalogue, three for each invariant."""

from typing import Any

from ....model import allocator, prefix
from ....model.pool import Pool
from ....model.vllm import kv_cache, model, queue, scheduler
from ....model.vllm.state import State
from ..content import HIT_IN_REVERSE
from ..faulty_targets import (
    RefusesLongPrompts,
    ShowsLittle,
    ShowsNoProgress,
    ShowsNothingComputed,
    TakesForEver,
)
from ..mutant import Mutant, Plant, release_with, replaced, together
from . import changes, pool_changes, queue_changes


def mutant(name: str, rule: str, plant: Plant = lambda stack: None, **more: Any) -> Mutant:
    """One that is held to the only revision."""
    return Mutant(name, rule, plant, revision="documented", system="vllm", **more)


def in_scheduler(name: str, make: changes.Make) -> Plant:
    """A function of the policy with a fault."""
    return replaced(scheduler, name, make)


def in_cache(name: str, make: changes.Make) -> Plant:
    """A function of the KV cache with a fault."""
    return replaced(kv_cache, name, make)


def observed(field: str, value: Any) -> Plant:
    """A field that always says the same."""

    def make(original: Any) -> Any:
        return lambda *args: original(*args) | {field: value}

    return in_scheduler("observe", make)


EVERY_SYSTEM = (
    mutant(
        "crashes with four running",
        "ALL-R01",
        in_scheduler("schedule", changes.crash_on_fourth_running),
    ),
    mutant("does not answer with three running", "ALL-R02", target=TakesForEver),
    mutant(
        "an abort loses a neighbour",
        "ALL-R03",
        in_scheduler("abort", changes.abort_loses_a_neighbour),
        alone=True,
    ),
    mutant("one token too many", "ALL-R04", in_scheduler("complete", changes.longer(1))),
    mutant(
        "goes on while others wait",
        "ALL-R05",
        in_scheduler("complete", changes.last_token_again(True)),
        target=ShowsLittle,
        alone=True,
    ),
    mutant(
        "goes on when no request waits",
        "ALL-R06",
        in_scheduler("complete", changes.last_token_again(False)),
        target=ShowsLittle,
    ),
    mutant(
        "preempts the first",
        "ALL-R07",
        target=release_with(
            replaced(
                queue, "victim", lambda original: queue_changes.first_come_first_preempted(original)
            )
        ),
        alone=True,
    ),
    mutant(
        "found before it is full",
        "ALL-R08",
        in_cache("hold", changes.found_before_full),
        alone=True,
    ),
    mutant(
        "unfilled blocks are found",
        "ALL-R08",
        in_cache("free", changes.unfilled_blocks_are_found),
    ),
    mutant("a block is not given back", "ALL-R09", in_cache("free", changes.last_block_stays)),
    mutant("runs in circles", "ALL-R10", target=ShowsNoProgress, alone=True),
    mutant("hits in reverse", "ALL-R11", HIT_IN_REVERSE),
    mutant("refuses long prompts", "ALL-R12", target=RefusesLongPrompts),
    mutant("shows nothing computed", "ALL-R13", target=ShowsNothingComputed),
)

INVARIANTS = (
    mutant(
        "running requests cost nothing",
        "V1-I2",
        in_scheduler("advance_running", changes.share_not_taken),
    ),
    mutant(
        "requests that join have a budget of their own",
        "V1-I2",
        in_scheduler("admit_waiting", changes.whole_budget_for_newcomers),
    ),
    mutant("one token over", "V1-I2", in_scheduler("clamp", changes.one_token_over)),
    mutant(
        "a slot too many", "V1-I3", in_scheduler("admit_waiting", changes.slots(changes.one_more))
    ),
    mutant(
        "who prefills takes no slot",
        "V1-I3",
        in_scheduler("admit_waiting", changes.slots(changes.prefills_take_none)),
    ),
    mutant(
        "slots are counted once a step",
        "V1-I3",
        in_scheduler("admit_waiting", changes.slots(changes.counted_once)),
    ),
    mutant(
        "a preempted request is lost",
        "V1-I1",
        replaced(queue, "put_back", queue_changes.lost_from_the_queue),
        alone=True,
    ),
    mutant(
        "a preempted request runs and waits",
        "V1-I1",
        in_scheduler("schedule", queue_changes.stays_with_the_running),
        alone=True,
    ),
    mutant(
        "an admitted request waits and runs",
        "V1-I1",
        in_scheduler("schedule", queue_changes.stays_in_the_queue),
        alone=True,
    ),
    mutant(
        "a token as soon as the prompt is computed",
        "V1-I4",
        in_scheduler("complete", queue_changes.emits(lambda one: one.computed >= one.prompt)),
        alone=True,
    ),
    mutant(
        "a token for every chunk",
        "V1-I4",
        in_scheduler("complete", queue_changes.emits(lambda one: True)),
        alone=True,
    ),
    mutant(
        "no token at the end of a block",
        "V1-I4",
        in_scheduler(
            "complete",
            queue_changes.emits(
                lambda one: (
                    one.num_uncomputed_tokens == 0 and (one.computed % 4 > 0 or one.generated > 0)
                )
            ),
        ),
        alone=True,
    ),
    mutant(
        "a preempted request keeps its counter",
        "V1-I5",
        in_scheduler(
            "preempt", queue_changes.rewound(lambda old, new: new._replace(computed=old.computed))
        ),
        alone=True,
    ),
    mutant(
        "a preempted request keeps its prefix hit",
        "V1-I5",
        in_scheduler(
            "preempt",
            queue_changes.rewound(
                lambda old, new: new._replace(computed=old.prefix_hit, prefix_hit=old.prefix_hit)
            ),
        ),
        alone=True,
    ),
    mutant(
        "a preempted request keeps a block",
        "V1-I5",
        in_scheduler("preempt", queue_changes.keeps_its_blocks),
        alone=True,
    ),
)

ROWS = (
    mutant(
        "admits in a step that preempted",
        "V1-R16",
        in_scheduler("advance_running", queue_changes.admit_all_the_same),
    ),
    mutant(
        "passes over who cannot go",
        "V1-R09",
        in_scheduler("admit_waiting", queue_changes.passes_over),
    ),
    mutant(
        "waiting requests first",
        "V1-R01",
        in_scheduler("schedule", queue_changes.waiting_first),
        alone=True,
    ),
    mutant(
        "the first is preempted",
        "V1CP-R13",
        replaced(
            queue, "victim", lambda original: queue_changes.first_come_first_preempted(original)
        ),
    ),
    mutant(
        "the tail is preempted, whatever the policy",
        "V1CP-R14",
        replaced(queue, "victim", lambda _: lambda config, running: running[-1]),
    ),
    mutant(
        "of equals the first is preempted",
        "V1CP-R14",
        replaced(queue, "victim", lambda original: queue_changes.by_priority_alone(original)),
    ),
    mutant(
        "the watermark is kept from all",
        "V1-R05",
        in_cache("grow", queue_changes.reserve_kept_from_all),
    ),
    mutant(
        "preempted behind the first",
        "V1CP-R17",
        replaced(queue, "put_back", queue_changes.behind_the_first),
        alone=True,
    ),
    mutant(
        "whose prompt is cut goes back",
        "V1CP-R03",
        in_scheduler("carry_out", queue_changes.silently_back),
        alone=True,
    ),
    mutant("preemptions are not counted", "V1CP-R29", observed("preempted", []), alone=True),
    mutant(
        "the last token is cached, too",
        "V1CP-R28",
        in_cache("prefix_hit", queue_changes.whole_prompt_hit),
        alone=True,
    ),
    mutant(
        "hits are cut short",
        "V1-R08",
        in_cache("prefix_hit", queue_changes.hit_cut_short),
        alone=True,
    ),
    mutant(
        "a token too many", "V1-R02", in_scheduler("clamp", queue_changes.one_beyond), alone=True
    ),
    mutant("no threshold", "V1-R11", in_scheduler("capped", queue_changes.no_threshold)),
    mutant(
        "running requests get half",
        "V1-R04",
        in_scheduler("advance_running", queue_changes.with_clamp(queue_changes.cut_in_half)),
    ),
    mutant(
        "chunks all the same",
        "V1CP-R07",
        in_scheduler("admit_waiting", queue_changes.chunks_all_the_same),
    ),
    mutant(
        "newcomers get half",
        "V1CP-R02",
        in_scheduler("admit_waiting", queue_changes.with_clamp(queue_changes.cut_in_half)),
        alone=True,
    ),
    mutant(
        "hits are not counted", "V1CP-R05", in_scheduler("observe", queue_changes.hits_not_counted)
    ),
    mutant(
        "the null block is handed out",
        "V1CP-R34",
        replaced(
            model.VllmModel,
            "initial",
            lambda _: (
                lambda self: State(
                    pool=Pool(self.config.num_blocks and self.config.num_blocks - 1, fresh=0)
                )
            ),
        ),
    ),
    mutant(
        "blocks are named by their place",
        "V1-R12",
        together(
            replaced(prefix, "prefix", lambda _: queue_changes.named_by_length),
            replaced(allocator, "prefix", lambda _: queue_changes.named_by_length),
            replaced(kv_cache, "prefix", lambda _: queue_changes.named_by_length),
        ),
        alone=True,
    ),
    mutant("a block ahead", "V1-R14", in_cache("grow", queue_changes.one_block_ahead)),
    mutant(
        "preempts all but the first",
        "V1-R05",
        in_scheduler("schedule", pool_changes.preempts_all_but_the_first),
    ),
    mutant(
        "the watermark beside the first chunk",
        "V1CP-R19",
        in_cache("admit", pool_changes.watermark_beside_the_first_chunk),
    ),
    mutant(
        "all must fit though only a chunk has to",
        "V1-R07",
        in_cache("admit", queue_changes.admits(reserve_full_isl=True)),
    ),
    mutant("no watermark", "V1CP-R19", in_cache("admit", queue_changes.admits(watermark=0.0))),
    mutant(
        "the first chunk alone must fit",
        "V1CP-R22",
        in_cache("admit", queue_changes.admits(reserve_full_isl=False)),
        alone=True,
    ),
    mutant(
        "the last has no turn",
        "V1-P01",
        in_scheduler("advance_running", queue_changes.skips_the_last),
        alone=True,
    ),
    mutant("a slot less", "V1-R07", in_scheduler("admit_waiting", changes.slots(changes.one_less))),
    mutant(
        "a reserve before any request runs",
        "V1-R07",
        in_cache("admit", queue_changes.reserve_before_anyone_runs),
    ),
)


MUTANTS = (*EVERY_SYSTEM, *INVARIANTS, *ROWS)
