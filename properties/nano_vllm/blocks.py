"""Where tokens are written, what sequences share, and what they find in the prefix cache.

Source: deck, chapters 7 "Prefix Caching" and 9 "Scheduler to GPU Execution"; release 0.2.0 for the
last block.
"""

from ...model.observation import Step
from ..content import in_common
from ..ledger import Ledger
from ..predicate import Predicate
from .decision import blocks_for, prefilled


def slot_wrong(ledger: Ledger, step: Step) -> str | None:
    """The blocks written to are those of the block table at the positions computed (NAN-R27)."""
    block = ledger.config["block_size"]
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


def something_written(ledger: Ledger, step: Step) -> bool:
    """A sequence is scheduled and goes on."""
    return any(name in (step.blocks or {}) for name in step.scheduled)


def shared_wrongly(ledger: Ledger, step: Step) -> str | None:
    """Sequences share a block only at the same place, full, and with the same tokens up to its end
    (NAN-R29)."""
    block = ledger.config["block_size"]
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
                return f"{name} and {other} share block {number}, which is still written to"
            if _said_alike(ledger, step, name, other) < end:
                return f"{name} and {other} share block {number}, and differ before token {end}"
    return None


def something_shared(ledger: Ledger, step: Step) -> bool:
    """Two sequences hold the same block."""
    held = [number for table in (step.blocks or {}).values() for number in table]
    return len(set(held)) < len(held)


def hit_ends_in_a_block(ledger: Ledger, step: Step) -> str | None:
    """A prefix hit is made of whole blocks (NAN-R32)."""
    for one in prefilled(ledger, step):
        hit = (step.prefix_hit or {}).get(one.id, 0)
        if hit % ledger.config["block_size"]:
            return f"{one.id} finds {hit} tokens in the cache, no whole blocks"
    return None


def part_of_a_prompt_is_known(ledger: Ledger, step: Step) -> bool:
    """A sequence starts with a hit, and not all of it is one."""
    return any((step.prefix_hit or {}).get(one.id) for one in prefilled(ledger, step))


def last_block_hit(ledger: Ledger, step: Step) -> str | None:
    """The last block of a sequence is never a hit (NAN-R35)."""
    block = ledger.config["block_size"]
    for one in prefilled(ledger, step):
        hit = ledger.hit_now(step, one)
        if one.started or hit is None:
            continue
        most = (blocks_for(ledger, one.num_tokens) - 1) * block
        if hit > most:
            return f"{one.id} finds {hit} of {one.num_tokens} tokens in the cache, at most {most}"
    return None


def everything_known_elsewhere(ledger: Ledger, step: Step) -> bool:
    """A sequence of whole blocks starts all of whose tokens were computed before."""
    return any(
        not one.started
        and one.num_tokens % ledger.config["block_size"] == 0
        and ledger.most_hit(one) >= one.num_tokens
        for one in prefilled(ledger, step)
    )


def _said_alike(ledger: Ledger, step: Step, name: str, other: str) -> int:
    """Tokens at the start that two sequences share, with what they emit in this step."""
    if not ledger.accounts.keys() >= {name, other}:
        return 0  # of a request that nobody has made nothing is known
    contents = []
    for one in (ledger.accounts[name], ledger.accounts[other]):
        emitted = one.emitted + (step.emitted or {}).get(one.id, 0)
        contents.append((*one.content, (f"out:{one.id}", emitted)) if emitted else one.content)
    return in_common(*contents)


PREDICATES = {
    "NAN-R27": Predicate(slot_wrong, something_written),
    "NAN-R29": Predicate(shared_wrongly, something_shared),
    "NAN-R32": Predicate(hit_ends_in_a_block, part_of_a_prompt_is_known),
    "NAN-R35": Predicate(last_block_hit, everything_known_elsewhere),
}
