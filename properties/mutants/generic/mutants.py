"""A mutant of the model for each rule of the generic catalogue."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....model.generic import model
from ....model.vllm import scheduler
from ..faulty_targets import AcceptsEverything
from ..mutant import Mutant, Plant, replaced
from ..vllm import changes, queue_changes
from ..vllm.mutants import EVERY_SYSTEM, in_scheduler

Observation = dict[str, Any]


def mutant(name: str, rule: str, plant: Plant = lambda stack: None, **more: Any) -> Mutant:
    """One that is held to the only revision, and asked for its rule alone."""
    return Mutant(name, rule, plant, revision="documented", system="generic", alone=True, **more)


def observed(field: str, change: Callable[[Any], Any]) -> Plant:
    """A field that shows something else."""

    def make(original: Any) -> Any:
        def observe(*args: Any) -> Observation:
            seen: Observation = original(*args)
            return seen | {field: change(seen[field])}

        return observe

    return replaced(scheduler, "observe", make)


def one_block_more(original: Any) -> Any:
    """A bounded pool has a block more than the configuration says."""

    def as_vllm(config: Any) -> dict[str, Any]:
        values: dict[str, Any] = original(config)
        size = values["num_blocks"]
        return values | {"num_blocks": None if size is None else size + 1}

    return as_vllm


BOUNDS = (
    mutant("one token over", "GEN-R01", in_scheduler("clamp", changes.one_token_over)),
    mutant(
        "a slot too many",
        "GEN-R02",
        in_scheduler("admit_waiting", changes.slots(changes.one_more)),
    ),
    mutant("takes requests of any length", "GEN-R03", target=AcceptsEverything),
    mutant(
        "passes over a request that cannot go",
        "GEN-R04",
        in_scheduler("admit_waiting", queue_changes.passes_over),
    ),
)
BLOCKS = (
    mutant(
        "the last block is not shown",
        "GEN-R05",
        observed("blocks", lambda held: {name: blocks[:-1] for name, blocks in held.items()}),
    ),
    mutant(
        "a preempted request keeps a block",
        "GEN-R06",
        in_scheduler("preempt", queue_changes.keeps_its_blocks),
    ),
    mutant("a block more than the pool", "GEN-R07", replaced(model, "as_vllm", one_block_more)),
)
TOKENS = (
    mutant(
        "a token as soon as the prompt is computed",
        "GEN-R08",
        in_scheduler("complete", queue_changes.emits(lambda one: one.computed >= one.prompt)),
    ),
    mutant(
        "computed in whole blocks",
        "GEN-R09",
        observed("computed", lambda held: {name: tokens // 4 * 4 for name, tokens in held.items()}),
    ),
    mutant(
        "chunks although it must not",
        "GEN-R10",
        in_scheduler("admit_waiting", queue_changes.chunks_all_the_same),
    ),
)
# The first shows only where requests have priorities, the second beside a model to compare with.
ELSEWHERE = ("unfilled blocks are found", "ALL-R07")
MUTANTS = (
    *(
        replace(one, system="generic")
        for one in EVERY_SYSTEM
        if not {one.name, one.rule} & {*ELSEWHERE}
    ),
    *BOUNDS,
    *BLOCKS,
    *TOKENS,
)
