"""Published bugs of nano-vLLM's scheduler, brought back as mutants of the model.

Each is the mutation that its fix undid, in the terms of the model. OUT_OF_SCOPE has the others,
with what is missing to see them.
"""

from typing import Any

from ....model import allocator
from ....model.members import changed
from ....model.nano_vllm import block_manager, release_0_2_0
from ....model.nano_vllm.config import NanoConfig
from ....model.nano_vllm.state import Plan, Sequence, State
from ....model.pool import Pool, blocks_for, fits
from ..faulty_targets import AcceptsEverything
from ..mutant import Mutant, Plant, replaced
from . import block_changes, changes
from .mutants import BROKEN_BY_0_2_0, in_blocks, in_deck, in_scheduler, mutant


def old_names_stay(original: Any) -> Any:
    """NAN-001: a block that is handed out is still found by what it held."""

    def take(pool: Pool, count: int) -> tuple[tuple[int, ...], Pool]:
        taken, left = original(pool, count)
        return taken, left._replace(cached=pool.cached)

    return take


def whole_sequence_charged(original: Any) -> Any:
    """NAN-003: what is to be computed is counted before the cache was asked. As far as the last
    block has room, or the release would crash before any request sees it."""

    def admitted(plan: Plan, one: Sequence, pool: Pool, tokens: int) -> Plan:
        block = one.prefix_hit // one.published if one.published else 0
        room = len(one.blocks) * block - one.computed
        after: Plan = original(plan, one, pool, max(tokens, min(one.num_tokens, room)))
        return after

    return admitted


def published_when_allocated(original: Any) -> Any:
    """NAN-005: full blocks can be found as soon as they are allocated."""

    def allocate(config: NanoConfig, pool: Pool, one: Sequence, hit: Any) -> Any:
        after, left = original(config, pool, one, hit)
        whole = after._replace(computed=after.num_tokens)
        _, found = block_manager.hash_blocks(config, left, whole)
        return after, found

    return allocate


def allocated_and_refused(original: Any) -> Any:
    """NAN-006: blocks are allocated before the last test, which may refuse."""

    def prefill(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        if not plan.waiting or not plan.scheduled:
            return plan
        one = plan.waiting[0]
        needed = blocks_for(one.num_tokens, config.block_size)
        if not fits(plan.pool, needed):
            return plan
        held, pool = block_manager.allocate(config, plan.pool, one, ())
        return plan._replace(waiting=(held._replace(computed=0), *plan.waiting[1:]), pool=pool)

    return prefill


def token_of_a_resumed_prefill_dropped(original: Any) -> Any:
    """NAN-008: the prefill of a preempted request gives no token."""

    def postprocess(config: NanoConfig, state: State, plan: Plan) -> Any:
        resumed = {
            one.id: one
            for one in state.running
            if plan.is_prefill and one.generated and one.id in plan.scheduled
        }
        others = {name: n for name, n in plan.scheduled.items() if name not in resumed}
        state, emitted, finished = original(config, state, plan._replace(scheduled=others))
        # Its last token is computed once more by the decode that follows.
        again = {name: one._replace(computed=one.num_tokens - 1) for name, one in resumed.items()}
        return state._replace(running=changed(state.running, again)), emitted, finished

    return postprocess


def slot_behind(original: Any) -> Any:
    """NAN-011: a decode writes one slot too far."""

    def slot_blocks(config: NanoConfig, state: State, plan: Plan) -> dict[str, list[int]]:
        written: dict[str, list[int]] = original(config, state, plan)
        for one in () if plan.is_prefill else state.running:
            place = (one.computed + 1) // config.block_size
            if one.id in plan.scheduled:
                written[one.id] = [*one.blocks[place : place + 1]]
        return written

    return slot_blocks


def something_is_scheduled(original: Any) -> Any:
    """NAN-012, NAN-017: a step that finds nothing to run for those that are there is an assertion
    that fails; no request was looked at when it came."""

    def schedule(config: NanoConfig, state: State) -> Plan:
        plan: Plan = original(config, state)
        assert plan.scheduled or not (state.waiting or state.running)
        return plan

    return schedule


def _bug(number: str, name: str, rule: str, plant: Plant, **more: Any) -> Mutant:
    return mutant(name, rule, plant, bug=f"NAN-{number}", **more)


KNOWN_BUGS = (
    _bug(
        "001", "old names stay", "NAN-R29", replaced(allocator, "take", old_names_stay), alone=True
    ),
    _bug(
        "002",
        "all of a prompt is cached",
        "NAN-R35",
        in_blocks("prefix_hit", block_changes.last_block_found),
    ),
    _bug(
        "003",
        "cached tokens computed",
        "NAN-R12",
        in_deck("admitted", whole_sequence_charged),
        alone=True,
    ),
    _bug(
        "005",
        "published when allocated",
        "ALL-R08",
        in_blocks("allocate", published_when_allocated),
        revision="0.2.0",
        known=BROKEN_BY_0_2_0,
        alone=True,
    ),
    _bug(
        "006",
        "allocated and refused",
        "NAN-R03",
        in_deck("prefill", allocated_and_refused),
        alone=True,
    ),
    _bug(
        "008",
        "token of a resumed prefill dropped",
        "NAN-R13",
        in_scheduler("postprocess", token_of_a_resumed_prefill_dropped),
    ),
    _bug("011", "slot behind", "NAN-R27", in_scheduler("slot_blocks", slot_behind)),
    _bug(
        "012",
        "alone it outgrows the pool",
        "ALL-R01",
        replaced(release_0_2_0, "schedule", something_is_scheduled),
        target=AcceptsEverything,
        revision="0.2.0",
        known=BROKEN_BY_0_2_0,
        alone=True,
    ),
    _bug("014", "slots of the step", "NAN-R40", in_deck("prefill", changes.slots_of_the_step)),
    _bug(
        "017",
        "longer than the budget",
        "ALL-R01",
        in_deck("schedule", something_is_scheduled),
        target=AcceptsEverything,
        alone=True,
    ),
    _bug(
        "018",
        "a block too early",
        "NAN-R17",
        in_blocks("crosses", block_changes.crosses_early),
        alone=True,
    ),
)

OUT_OF_SCOPE = {
    "NAN-009": "what the ranks of a model are sent is no scheduling decision",
    "NAN-015": "no rule: of equal blocks filled in one step the last is found, in every revision",
    "NAN-020": "graphs are the model runner's",
}
