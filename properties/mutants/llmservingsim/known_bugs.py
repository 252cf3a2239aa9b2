"""Published bugs of LLMServingSim's scheduler, brought back as mutants of the models.

Each is the mutation that its fix undid, in the terms of the model; the rule is the one that its
invariant words. OUT_OF_SCOPE has the others, with what is missing to see them.
"""

from typing import Any

from ....model import allocator, prefix
from ....model.llmservingsim.config import LlmServingSimConfig
from ....model.llmservingsim.state import Plan, Sequence
from ....model.pool import Pool, fits, take
from ..faulty_targets import AcceptsEverything
from ..mutant import Mutant, release_with, replaced, together
from . import batch_changes, changes
from .mutants import at_head, by_the_page, in_cache, in_head, in_page

Config = LlmServingSimConfig


def later_chunks_decode(one: Sequence, tokens: int) -> int:
    """LSS-002: whatever comes after the first chunk is taken for a decode."""
    return 1 if one.computed else tokens


def evicts_too_much(original: Any) -> Any:
    """LSS-003: more is evicted than is needed."""

    def taken(pool: Pool, count: int) -> Any:
        blocks, after = original(pool, count)
        if not set(blocks) & {block for block, _ in pool.tail}:
            return blocks, after
        gone = {content for _, content in after.tail}
        cached = {name: held for name, held in after.cached.items() if name not in gone}
        tail = tuple((block, None) for block, _ in after.tail)
        return blocks, after._replace(tail=tail, cached=cached)

    return taken


def free_blocks_doubled(original: Any) -> Any:
    """LSS-005: what is free is multiplied once too often."""
    return lambda pool, blocks: original(pool, (blocks + 1) // 2)


def hit_allocated_again(original: Any) -> Any:
    """LSS-009: blocks are allocated for cached tokens as well, and then no request holds them."""

    def admit(config: Config, pool: Pool, one: Sequence, hit: Any, *rest: Any) -> Any:
        admitted = original(config, pool, one, hit, *rest)
        if admitted is None or not hit or not fits(admitted[1], len(hit)):
            return admitted
        return admitted[0], take(admitted[1], len(hit))[1]

    return admit


def frees_nothing(original: Any) -> Any:
    """LSS-011: a request that makes room gives nothing back."""

    def preempt(config: Config, plan: Plan, last: Sequence) -> Plan:
        after: Plan = original(config, plan, last)
        return after._replace(pool=plan.pool)

    return preempt


def without_parent(original: Any) -> Any:
    """LSS-012: a block is named by its own words, whatever comes before them."""
    return lambda content, tokens: original(content, tokens)[-1:]


def nothing_left_to_compute(original: Any) -> Any:
    """LSS-021: a request that finds all of its tokens cached is not admitted."""

    def admit(config: Config, pool: Pool, one: Any, hit: Any, tokens: int, *rest: Any) -> Any:
        return original(config, pool, one, hit, tokens, *rest) if tokens > 0 else None

    return admit


def _bug(number: str, mutant: Mutant) -> Mutant:
    return Mutant(**{**vars(mutant), "bug": f"LSS-{number}"})


KNOWN_BUGS = (
    _bug(
        "002",
        by_the_page(
            "later chunks decode", "LSS-R12", in_page("need", changes.needs(later_chunks_decode))
        ),
    ),
    _bug(
        "003",
        at_head(
            "evicts too much",
            "ALL-R07",
            target=release_with(replaced(allocator, "take", evicts_too_much)),
            alone=True,
        ),
    ),
    _bug("005", by_the_page("free twice", "LSS-P01", in_cache("fits", free_blocks_doubled))),
    _bug("009", by_the_page("charged twice", "ALL-R09", in_cache("admit", hit_allocated_again))),
    _bug("011", at_head("gives nothing back", "ALL-R09", in_head("preempt", frees_nothing))),
    _bug(
        "012",
        by_the_page(
            "names without a parent",
            "ALL-R08",
            together(
                replaced(prefix, "prefix", without_parent),
                replaced(allocator, "prefix", without_parent),
            ),
        ),
    ),
    _bug(
        "018",
        at_head(
            "no gate",
            "LSS-R31",
            in_cache("admit", batch_changes.room_for(lambda one, after: after)),
        ),
    ),
    _bug(
        "020",
        by_the_page("waits for a larger budget", "ALL-R10", target=AcceptsEverything, alone=True),
    ),
    _bug(
        "021",
        at_head(
            "all of it cached",
            "ALL-R10",
            together(
                in_cache("prefix_hit", batch_changes.whole_prompt_hit),
                in_cache("admit", nothing_left_to_compute),
            ),
            alone=True,
        ),
    ),
    _bug(
        "023",
        at_head("larger than the pool", "ALL-R10", target=AcceptsEverything, alone=True),
    ),
)

OUT_OF_SCOPE = {
    "LSS-006": "statistics of cache look-ups are no part of a step observation",
    "LSS-008": "tiers below the accelerator's memory, and what they cost, are not in the protocol",
    "LSS-014": "a function defined twice is no decision; the second one is what runs",
    "LSS-015": "a step completes at once; tests of the models have it with batches on their way",
    "LSS-017": "several instances that run in lockstep are not in the protocol",
    "LSS-024": "where a pipeline is cut belongs to the trace, not to a scheduling decision",
    "LSS-026": "how much a prefill instance sends to a decode instance is not in the protocol",
}
