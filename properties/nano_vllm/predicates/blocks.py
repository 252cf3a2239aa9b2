"""Where tokens are written, which blocks sequences share, and prefix hits.

Source: the slide deck on nano-vLLM, chapters 7 "Prefix Caching" and 9 "Scheduler to GPU Execution";
release 0.2.0 for the last block.
"""

from ....model.observation import Step
from ...history.content import surely_shared
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.pool import blocks_for, hit_too_short, in_common_after, must_be_found_again
from ...rules.predicate import Predicate
from .decision import prefilled, ran_before


def slot_wrong(history: RunHistory, step: Step) -> str | None:
    """Check that a step writes each token to the block that the block table lists for its position
    (NAN-R27)."""
    block = history.config["block_size"]
    for name, written in (step.slot_blocks or {}).items():
        table, computed = (step.blocks or {}).get(name), (step.computed or {}).get(name)
        if not table or computed is None:
            continue
        first = computed - step.scheduled.get(name, 0)
        expected = table[first // block : (computed - 1) // block + 1]
        if list(written) != list(expected):
            return (
                f"{name} writes tokens {first} to {computed - 1} to blocks {list(written)}, its "
                f"block table has {list(expected)} there"
            )
    return None


def something_written(history: RunHistory, step: Step) -> bool:
    return any(name in (step.blocks or {}) for name in step.scheduled)


def shared_wrongly(history: RunHistory, step: Step) -> str | None:
    """Check that sequences share a block only if the block has the same place in both tables, is
    full, and has the same tokens up to its end (NAN-R29)."""
    block = history.config["block_size"]
    seen: dict[int, tuple[str, int]] = {}
    for name, table in (step.blocks or {}).items():
        for place, number in enumerate(table):
            if number not in seen:
                seen[number] = (name, place)
                continue
            other, other_place = seen[number]
            if place != other_place or name == other:
                return f"block {number} is block {place} of {name} and {other_place} of {other}"
            end = (place + 1) * block
            if min((step.computed or {}).get(n, 0) for n in (name, other)) < end:
                return f"{name} and {other} share block {number}, which is still being written"
            if in_common_after(history, step, name, other) < end:
                return f"{name} and {other} share block {number}, and differ before token {end}"
    return None


def something_shared(history: RunHistory, step: Step) -> bool:
    held = [number for table in (step.blocks or {}).values() for number in table]
    return len(set(held)) < len(held)


def hit_ends_in_a_block(history: RunHistory, step: Step) -> str | None:
    """Check that a prefix hit consists of whole blocks (NAN-R32)."""
    for request in prefilled(history, step):
        hit = (step.prefix_hit or {}).get(request.id, 0)
        if hit % history.config["block_size"]:
            return f"{request.id} finds {hit} tokens in the cache, which are not whole blocks"
    return None


def part_of_a_prompt_is_known(history: RunHistory, step: Step) -> bool:
    return any((step.prefix_hit or {}).get(request.id) for request in prefilled(history, step))


def last_block_hit(history: RunHistory, step: Step) -> str | None:
    """Check that the last block of a sequence is never a hit (NAN-R35)."""
    block = history.config["block_size"]
    for request in prefilled(history, step):
        hit = history.hit_now(step, request)
        if request.started or hit is None:
            continue
        most = (blocks_for(history, request.num_tokens) - 1) * block
        if hit > most:
            return (
                f"{request.id} finds {hit} of {request.num_tokens} tokens in the cache, but at "
                f"most {most} are allowed"
            )
    return None


def everything_known_elsewhere(history: RunHistory, step: Step) -> bool:
    return any(
        not request.started
        and request.num_tokens % history.config["block_size"] == 0
        and history.max_hit(step, request) >= request.num_tokens
        for request in prefilled(history, step)
    )


def hit_missed(history: RunHistory, step: Step) -> str | None:
    """Check that a starting sequence does not compute the full blocks that it shares with a running
    one (NAN-R34)."""
    return hit_too_short(
        history, step, prefilled(history, step), lambda request: hit_at_least(history, request)
    )


def shares_with_running(history: RunHistory, step: Step) -> bool:
    return any(hit_at_least(history, request) for request in prefilled(history, step))


def hit_at_least(history: RunHistory, request: RequestHistory) -> int:
    """Return how many tokens a starting sequence must find in the cache. All of them are in blocks
    that other sequences hold."""
    block = history.config["block_size"]
    return surely_shared(request, ran_before(history), history.kin(request), block)


PREDICATES = {
    "NAN-R27": Predicate(slot_wrong, something_written),
    "NAN-R29": Predicate(shared_wrongly, something_shared),
    "NAN-R32": Predicate(
        hit_ends_in_a_block, part_of_a_prompt_is_known, reads=("prefix_hit", "running", "scheduled")
    ),
    "NAN-R34": Predicate(hit_missed, shares_with_running),
    "NAN-R48": must_be_found_again(prefilled),
    "NAN-R35": Predicate(last_block_hit, everything_known_elsewhere),
}
