"""Published bugs of vLLM's scheduler, brought back as mutants of the model.

Each is the mutation that its fix undid, in the terms of the model; the rule is the one that its
invariant words. OUT_OF_SCOPE has the others, with what is missing to see them.
"""

from typing import Any

from ....model import allocator
from ....model.pool import Pool, fits, take, touch
from ....model.vllm import kv_cache, model, queue, scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Sequence, State
from ..faulty_targets import AcceptsEverything
from ..mutant import Mutant, Plant, replaced
from . import changes, known_in_flight_bugs, pool_changes, queue_changes
from .mutants import in_cache, in_scheduler, mutant


def cursor_stays(original: Any) -> Any:
    """VLL-003: when a request in front leaves, the place in the list does not move along."""

    def advance_running(config: VllmConfig, plan: Plan, *rest: Any) -> Plan:
        place = 0
        while place < len(plan.running) and plan.budget > 0:
            one = plan.running[place]
            tokens = scheduler.clamp(config, one.num_uncomputed_tokens, plan.budget)
            grown = kv_cache.grow(config, plan.pool, one, tokens)
            while grown is None:
                victim = queue.victim(config, plan.running)
                plan = scheduler.preempt(config, plan, victim)
                if victim is one:
                    return plan
                grown = kv_cache.grow(config, plan.pool, one, tokens)
            at = next(n for n, other in enumerate(plan.running) if other.id == one.id)
            plan = scheduler.scheduled(plan, at, *grown, tokens)
            place += 1
        return plan

    return advance_running


def to_the_end(original: Any) -> Any:
    """VLL-005: a preempted request is added as if it had just arrived."""
    return queue.enqueued


def null_block_usable(original: Any) -> Any:
    """VLL-009: the pool has one block less than it says."""

    def initial(self: Any) -> State:
        size = self.config.num_blocks
        return State(pool=Pool(size and size - 1))

    return initial


def room_for_the_longest(original: Any) -> Any:
    """VLL-018: four blocks more than needed are allocated, whatever the model's length."""

    def hold(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> Any:
        held, pool = original(config, pool, one, tokens)
        more = 4 if fits(pool, 4) else 0
        new, pool = take(pool, more)
        return held._replace(blocks=held.blocks + new), pool

    return hold


def hash_of_another_stays(original: Any) -> Any:
    """VLL-021: of two blocks with the same content, the one that is handed out is still found."""

    def take(pool: Pool, count: int) -> Any:
        taken, after = original(pool, count)
        kept = {
            content: tuple(dict.fromkeys((*after.cached[content], *blocks)))
            for content, blocks in pool.cached.items()
            if len(blocks) > 1 and content in after.cached
        }
        return taken, after._replace(cached={**after.cached, **kept})

    return take


def first_chunk_and_no_reserve(original: Any) -> Any:
    """VLL-026: neither a watermark nor the whole sequence keeps a request out."""
    return queue_changes.admits(watermark=0.0, reserve_full_isl=False)(original)


def lone_request_capped(original: Any) -> Any:
    """VLL-041 is a choice of the document; the fault is the opposite, the threshold forgotten."""
    return queue_changes.lifted_when_alone(original)


def hit_kept_when_refused(original: Any) -> Any:
    """VLL-042: a request that cannot be scheduled keeps the blocks that it found."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        if not after.waiting or after.preempted:
            return after
        one = after.waiting[0]
        hit = kv_cache.prefix_hit(config, after.pool, one)
        if not hit or one.blocks:
            return after
        kept = one._replace(blocks=hit)
        pool = touch(after.pool, hit)
        return after._replace(waiting=(kept, *after.waiting[1:]), pool=pool)

    return admit_waiting


def preempts_to_admit(original: Any) -> Any:
    """VLL-050: for a waiting request the last of the running ones is preempted."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        after: Plan = original(config, plan)
        if not after.waiting or len(after.running) < 2 or after.running != plan.running:
            return after
        newcomer, rest = after.waiting[0], after.waiting[1:]
        freed = scheduler.preempt(config, after._replace(waiting=rest), after.running[-1])
        admitted: Plan = original(config, freed._replace(waiting=(newcomer,)))
        return admitted._replace(waiting=(*admitted.waiting, *freed.waiting))

    return admit_waiting


def _bug(
    number: str, name: str, rule: str, plant: Plant = lambda stack: None, **more: Any
) -> Mutant:
    return mutant(name, rule, plant, bug=f"VLL-{number}", **more)


KNOWN_BUGS = (
    _bug(
        "003",
        "cursor past a victim",
        "V1-P01",
        in_scheduler("advance_running", cursor_stays),
        alone=True,
    ),
    _bug(
        "005",
        "preempted behind newcomers",
        "V1CP-R17",
        replaced(queue, "put_back", to_the_end),
        alone=True,
    ),
    _bug("008", "more than the pool has", "ALL-R10", target=AcceptsEverything, alone=True),
    _bug(
        "009",
        "null block counted",
        "ALL-R10",
        replaced(model.VllmModel, "initial", null_block_usable),
        alone=True,
    ),
    _bug("018", "blocks ahead", "V1-R14", in_cache("hold", room_for_the_longest)),
    _bug(
        "020",
        "cached blocks not counted",
        "ALL-R01",
        in_cache("unheld", pool_changes.cached_blocks_cost_nothing),
        alone=True,
    ),
    _bug(
        "021",
        "hash of an evicted block",
        "V1-R12",
        replaced(allocator, "take", hash_of_another_stays),
        alone=True,
    ),
    _bug("026", "thrash", "V1CP-R19", in_cache("admit", first_chunk_and_no_reserve), alone=True),
    _bug(
        "027",
        "first chunk alone",
        "V1CP-R22",
        in_cache("admit", queue_changes.admits(reserve_full_isl=False)),
        alone=True,
    ),
    _bug("041", "threshold of one alone", "V1-R11", in_scheduler("schedule", lone_request_capped)),
    _bug(
        "042",
        "refused and holding",
        "V1-R14",
        in_scheduler("admit_waiting", hit_kept_when_refused),
        alone=True,
    ),
    _bug(
        "050",
        "preempts to admit",
        "V1-R05",
        in_scheduler("admit_waiting", preempts_to_admit),
        alone=True,
    ),
    _bug(
        "054",
        "tokens lost",
        "ALL-R04",
        in_scheduler("preempt", changes.tokens_lost_at_preemption),
        alone=True,
    ),
    *known_in_flight_bugs.KNOWN_BUGS,
)

OUT_OF_SCOPE = {
    "VLL-002": "which drafts the worker gets is not in the protocol",
    "VLL-006": "a wish: the document has no preemption in favour of a waiting request",
    "VLL-017": "no document pads a request that joins",
    "VLL-024": "the report does not say what crashed",
    "VLL-029": "not confirmed; which of those set aside is first, no document says",
    "VLL-030": "as VLL-008, of a prompt that is longer than the budget and must not be cut",
    "VLL-033": "state-space models are not in the protocol",
    "VLL-036": "a load that never ends is not in the protocol",
    "VLL-039": "by the cheat-sheet every running request counts, also one that has only to end",
    "VLL-044": "what a worker leaves out is no scheduling decision",
    "VLL-045": "an abort comes between the decision and its completion, never inside the decision",
    "VLL-047": "hashes of blocks that are not full are not in the protocol",
    "VLL-048": "the evictor of V0; V1 has none",
    "VLL-053": "sliding windows are not in the protocol",
}
