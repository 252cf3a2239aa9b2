"""What requests hold, what they share, and what they find in the prefix cache.

Source: cheat-sheet, "Knobs" and "The Phase 02-03 seam"; chunked-prefill chapter, "When the cache,
not the budget, runs out"; release 0.28.0 for the last token and the null block.
"""

from ...model.observation import Step
from ..content import in_common, said_by
from ..ledger import Account, Ledger, caches
from ..predicate import Predicate
from .decision import admitted, blocks_for, kept

NULL_BLOCK = 0


def null_block_held(ledger: Ledger, step: Step) -> str | None:
    """Nobody holds block 0, the null block (V1CP-R34)."""
    for name, held in (step.blocks or {}).items():
        if NULL_BLOCK in held:
            return f"{name} holds block 0, the null block, at position {held.index(NULL_BLOCK)}"
    return None


def pool_used_up(ledger: Ledger, step: Step) -> bool:
    """Every usable block is held."""
    return step.free_blocks == 0


def holds_wrong_number(ledger: Ledger, step: Step) -> str | None:
    """Who runs holds the blocks of what is computed: no fewer, no more (V1-R14)."""
    for name, computed in (step.computed or {}).items():
        held = len((step.blocks or {}).get(name, ()))
        if held != blocks_for(ledger, computed):
            needed = blocks_for(ledger, computed)
            return f"{name} holds {held} blocks; its {computed} computed tokens are {needed}"
    return None


def block_border_crossed(ledger: Ledger, step: Step) -> bool:
    """A request that has run before needs one more block."""
    return any(
        blocks_for(ledger, one.computed + step.scheduled.get(one.id, 0))
        > blocks_for(ledger, one.computed)
        for one in kept(ledger, step)
    )


def shared_wrongly(ledger: Ledger, step: Step) -> str | None:
    """Two requests share a block only if it is full and their tokens up to its end are the same;
    nobody writes to it any more (V1-R12)."""
    block = ledger.config["block_size"]
    seen: dict[int, tuple[str, int]] = {}
    for name, held in (step.blocks or {}).items():
        for place, number in enumerate(held):
            if number not in seen:
                seen[number] = (name, place)
                continue
            other, other_place = seen[number]
            if place != other_place or name == other:
                return f"block {number} is block {place} of {name} and {other_place} of {other}"
            end = (place + 1) * block
            if _in_common(ledger, step, name, other) < end:
                return f"{name} and {other} share block {number}, and differ before token {end}"
            if min((step.computed or {}).get(n, end) for n in (name, other)) < end:
                return f"{name} and {other} share block {number}, which is still written to"
    return None


def something_shared(ledger: Ledger, step: Step) -> bool:
    """Two requests hold the same block."""
    held = [number for numbers in (step.blocks or {}).values() for number in numbers]
    return len(set(held)) < len(held)


def hit_too_long(ledger: Ledger, step: Step) -> str | None:
    """A hit has whole blocks and never the last known token: it must be computed (V1CP-R28)."""
    block = ledger.config["block_size"]
    for one in admitted(ledger, step):
        hit = ledger.hit_now(step, one)
        if hit is None:
            continue
        if hit >= one.num_tokens:
            return f"{one.id} finds {hit} of {one.num_tokens} tokens in the cache: all of them"
        if hit % block and one.id in (step.prefix_hit or {}):
            return f"{one.id} finds {hit} tokens in the cache, no whole blocks of {block}"
    return None


def everything_known_elsewhere(ledger: Ledger, step: Step) -> bool:
    """A request of whole blocks starts all of whose tokens were computed before."""
    return caches(ledger.config) and any(
        one.num_tokens % ledger.config["block_size"] == 0
        and _known_elsewhere(ledger, one) >= one.num_tokens
        for one in admitted(ledger, step)
    )


def hit_missed(ledger: Ledger, step: Step) -> str | None:
    """A request starts from the full blocks that it shares with one that runs (V1-R08)."""
    for one in admitted(ledger, step):
        hit, shared = ledger.hit_now(step, one), _shared_with_running(ledger, step, one)
        if hit is not None and hit < shared:
            return f"{one.id} finds {hit} tokens in the cache; one that runs holds {shared} of them"
    return None


def shares_with_running(ledger: Ledger, step: Step) -> bool:
    """A request starts that shares a full block with one that runs."""
    return any(_shared_with_running(ledger, step, one) for one in admitted(ledger, step))


def _shared_with_running(ledger: Ledger, step: Step, one: Account) -> int:
    """Tokens in full blocks at the start, the last one apart, that a running request holds."""
    if not caches(ledger.config):
        return 0
    block, longest = ledger.config["block_size"], one.num_tokens - 1
    return max(
        (
            min(in_common(said_by(one), said_by(other)), other.computed, longest) // block * block
            for other in kept(ledger, step)
        ),
        default=0,
    )


def _known_elsewhere(ledger: Ledger, one: Account) -> int:
    return max(
        (
            min(in_common(said_by(one), said_by(other)), other.most_computed)
            for other in ledger.accounts.values()
            if other.most_computed
        ),
        default=0,
    )


def _in_common(ledger: Ledger, step: Step, name: str, other: str) -> int:
    """Tokens at the start that two requests share, with what they emit in this step."""
    if not ledger.accounts.keys() >= {name, other}:
        return 0  # of a request that nobody has made nothing is known
    contents = []
    for one in (ledger.accounts[name], ledger.accounts[other]):
        emitted = one.emitted + (step.emitted or {}).get(one.id, 0)
        contents.append((*one.content, (f"out:{one.id}", emitted)) if emitted else one.content)
    return in_common(*contents)


PREDICATES = {
    "V1CP-R34": Predicate(null_block_held, pool_used_up),
    "V1-R12": Predicate(shared_wrongly, something_shared),
    "V1CP-R28": Predicate(hit_too_long, everything_known_elsewhere),
    "V1-R08": Predicate(hit_missed, shares_with_running),
    "V1-R14": Predicate(holds_wrong_number, block_border_crossed),
}
