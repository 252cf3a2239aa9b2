"""The blocks that requests hold, share, and find in the prefix cache.

Source: cheat-sheet, "Knobs" and "The Phase 02-03 seam"; chunked-prefill chapter, "When the cache,
not the budget, runs out"; release 0.28.0 for the last token and the null block; release
0.33.0 for partitions (generate_block_hash_extra_keys) and EAGLE (KVCacheCoordinator).
"""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from ....model.observation import Step
from ...history.content import in_common, surely_shared
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from ...rules.common import computed_of, first_hits
from ...rules.pool import blocks_for, hit_too_short, in_common_after, must_be_found_again
from ...rules.predicate import Predicate
from ..history import groups, in_flight, loads, partitions, speculation, synchronous
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import admitted, computed_after, kept, surely_given

NULL_BLOCK = 0


def null_block_held(history: VllmRun, step: Step) -> str | None:
    """No request holds block 0, the null block (V1CP-R34)."""
    for name, held in (step.blocks or {}).items():
        if NULL_BLOCK in held:
            return f"{name} holds block 0, the null block, at position {held.index(NULL_BLOCK)}"
    return None


def pool_used_up(history: VllmRun, step: Step) -> bool:
    return step.free_blocks == 0


def holds_wrong_number(history: VllmRun, step: Step) -> str | None:
    """A running request holds exactly the blocks of its computed tokens (V1-R14). It keeps the
    blocks that its drafts took. With its first chunk, it may also get the blocks of its lookahead.
    """
    for name, computed in (step.computed or {}).items():
        held = len((step.blocks or {}).get(name, ()))
        covered = max(computed, surely_given(history, step, name))
        most = max(covered, speculation.slots(history.config, computed))
        request = history.live.get(name)
        if request is not None:
            most = max(most, request.most_slots)
        if request is not None and name in step.scheduled:
            reached = computed_after(history, step, request)
            most = max(most, speculation.slots(history.config, reached))
        if request is not None and loads.may_fail(request):
            covered, most = computed, max(most, loads.offered(history.config, request))
        if not blocks_for(history, covered) <= held <= blocks_for(history, most):
            needed = blocks_for(history, covered)
            drafts = f" ({covered} with drafts)" if covered > computed else ""
            return (
                f"{name} holds {held} blocks; its {computed} computed tokens{drafts} need {needed}"
            )
    return None


def block_border_crossed(history: VllmRun, step: Step) -> bool:
    return any(
        blocks_for(history, request.computed + step.scheduled.get(request.id, 0))
        > blocks_for(history, request.computed)
        for request in kept(history, step)
    )


def shared_wrongly(history: VllmRun, step: Step) -> str | None:
    """A shared block is full, is not written to any more, and holds tokens that both requests have;
    without prefix caching, no block is shared (V1-R12)."""
    block, computed = history.config["block_size"], step.computed or {}
    shared = history.holders.shared(step.blocks or {})
    seen: dict[int, tuple[str, int]] = {}
    for name, held in (step.blocks or {}).items() if shared else ():
        left = sum(map(shared.__contains__, held))
        # For each request that shares blocks with this one: how many tokens both have in common,
        # and have computed.
        common: dict[str, tuple[int, float]] = {}
        for place, number in enumerate(held):
            if not left:
                break
            if number not in shared:
                continue
            left -= 1
            if number not in seen:
                seen[number] = (name, place)
                continue
            other, other_place = seen[number]
            if place != other_place or name == other:
                return f"block {number} is block {place} of {name} and {other_place} of {other}"
            if other not in common:
                if not caches(history.config):
                    return (
                        f"{other} and {name} share block {number}, although prefix caching is off"
                    )
                both = min(computed.get(name, inf), computed.get(other, inf))
                common[other] = in_common_after(history, step, name, other), both
            alike, written = common[other]
            end = (place + 1) * block
            if alike < end:
                return f"{name} and {other} share block {number}, and differ before token {end}"
            if written < end:
                if _computes_again(history, step, {name, other}):
                    continue
                return f"{name} and {other} share block {number}, which is still being written"
    return None


def _computes_again(history: VllmRun, step: Step, names: set[str]) -> bool:
    """Return whether one of these requests recomputes tokens that failed to load. With several
    groups, such a request also recomputes the tokens that it found in the cache."""
    both = [history.live[name] for name in names if name in history.live]
    if groups.are_several(history.config) and any(loads.may_fail(request) for request in both):
        return True
    return any(history.features.may_lose_tokens(history, step, request) for request in both)


def something_shared(history: VllmRun, step: Step) -> bool:
    return bool(history.holders.shared(step.blocks or {}))


def hit_too_long(history: VllmRun, step: Step) -> str | None:
    """A hit consists of whole blocks, and never includes the last known token (V1CP-R28)."""
    block = min(history.config["block_size"], groups.match_unit(history.config))
    for request in admitted(history, step):
        hit = history.hit_now(step, request)
        if hit is None or request.tokens_loading:
            continue
        if hit >= request.num_tokens:
            return (
                f"{request.id} finds {hit} of {request.num_tokens} tokens in the cache: all of them"
            )
        loads_now = request in synchronous.load_now(history, step)
        if hit % block and request.id in (step.prefix_hit or {}) and not loads_now:
            units = "units" if groups.hits_inside(history.config) else "blocks"
            whole = f"which are not whole {units} of {block}"
            return f"{request.id} finds {hit} tokens in the cache, {whole}"
    return None


def everything_known_elsewhere(history: VllmRun, step: Step) -> bool:
    return caches(history.config) and any(
        request.num_tokens % history.config["block_size"] == 0
        and _known_elsewhere(history, request) >= request.num_tokens
        for request in admitted(history, step)
    )


def hit_missed(history: VllmRun, step: Step) -> str | None:
    """A starting request reuses every full block that it shares with a running request (V1-R08)."""
    return hit_too_short(
        history,
        step,
        admitted(history, step),
        lambda request: _shared_with_running(history, step)[request.id],
    )


def shares_with_running(history: VllmRun, step: Step) -> bool:
    return any(_shared_with_running(history, step).values())


@once
def _shared_with_running(history: VllmRun, step: Step) -> dict[str, int]:
    """Map each starting request to the number of its prompt tokens that lie in full blocks of a
    running request, without the last token.

    The number is 0 for a request with a load, and if another KV group may lack some of these
    tokens. Blocks of a decision that has not completed do not count, since they might not be
    published yet. With several decisions in flight, blocks of a request that leaves in this step do
    not count either, since it may leave before another one starts. With a drafter that has its own
    keys and values, the last block does not count either, because it may be computed again.
    """
    config, starting = history.config, admitted(history, step)
    again = _computed_again(config)
    shared = {request.id: 0 for request in starting}
    if not starting or not caches(config) or groups.further(config):
        return shared
    ahead = in_flight.depth(config) > 1
    leaving = {*(step.finished or ()), *history.aborts_inside} if ahead else ()
    there = [other for other in kept(history, step) if other.id not in leaving]
    for request in starting:
        if not request.tokens_loading:
            kin, block = history.kin(request), config["block_size"]
            found = surely_shared(request, there, kin, block, of_prompts=True, completed=True)
            shared[request.id] = max(found - again, 0)
    return shared


def _looking_up(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the starting requests, unless the configuration has more than one KV group. Leave out
    sessions between two turns, and requests whose tokens a connector has loaded."""
    if groups.further(history.config):
        return []  # V1-R93
    return [request for request in admitted(history, step) if not request.tokens_loading]


def _computed_again(config: Mapping[str, Any]) -> int:
    """Return how many of the tokens that a request shares may be computed again (V1-R61)."""
    return int(config["block_size"]) if speculation.lookahead(config) else 0


def _known_elsewhere(history: VllmRun, request: VllmRequestHistory) -> int:
    return max(
        (
            min(in_common(request, other), other.max_computed)
            for other in history.kin(request)
            if other.max_computed
        ),
        default=0,
    )


def hit_of_another_partition(history: VllmRun, step: Step) -> str | None:
    """A hit covers only what requests with the same salt and adapter have computed (V1-R40)."""
    for request, hit in first_hits(history, step):
        known = max(
            computed_of(history, step, request, other)
            for other in history.requests.values()
            if other.partition == request.partition
        )
        if hit > max(known, synchronous.loaded_now(history, step, request)):
            adapter, salt = request.partition
            return (
                f"{request.id} takes {hit} tokens from the cache, but only {known} were computed "
                f"with its adapter ({adapter or 'none'}) and its salt ({salt or 'none'})"
            )
    return None


def could_hit_another_partition(history: VllmRun, step: Step) -> bool:
    """The first block of a starting request was computed in another partition only."""
    block = history.config["block_size"]
    for request, _ in first_hits(history, step):
        tokens = {True: 0, False: 0}
        for other in history.requests.values():
            own = other.partition == request.partition
            tokens[own] = max(tokens[own], computed_of(history, step, request, other))
        if tokens[False] // block > tokens[True] // block:
            return True
    return False


def hit_with_another_next_token(history: VllmRun, step: Step) -> str | None:
    """With EAGLE, a hit ends where another request had the same next token (V1-R61)."""
    for request, hit, _, known in _drafters_hits(history, step):
        if hit > max(known, synchronous.loaded_now(history, step, request)):
            return (
                f"{request.id} takes {hit} tokens from the cache, but no request had the same "
                f"token after them; the drafter may use at most {known} of them"
            )
    return None


def next_token_decides(history: VllmRun, step: Step) -> bool:
    block = history.config["block_size"]
    return any(
        shared // block > known // block for *_, shared, known in _drafters_hits(history, step)
    )


def _drafters_hits(
    history: VllmRun, step: Step
) -> Iterator[tuple[VllmRequestHistory, int, int, int]]:
    """Yield each starting request with the lengths of three prefixes of its tokens: its hit; the
    longest one that some request has computed, at most all tokens but the last; and the longest one
    that some request has computed and continued with the same token."""
    for request, hit in first_hits(history, step):
        shared = known = 0
        for other in history.requests.values():
            computed = computed_of(history, step, request, other)
            shared = max(shared, min(computed, request.num_tokens - 1))
            known = max(known, min(computed, in_common(request, other) - 1))
        yield request, hit, shared, known


PREDICATES = {
    "V1CP-R34": Predicate(null_block_held, pool_used_up, reads=("blocks", "free_blocks")),
    "V1-R12": Predicate(shared_wrongly, something_shared),
    "V1CP-R28": Predicate(hit_too_long, everything_known_elsewhere),
    "V1-R08": Predicate(hit_missed, shares_with_running),
    "V1CP-R36": must_be_found_again(_looking_up, _computed_again),
    "V1-R14": Predicate(holds_wrong_number, block_border_crossed),
    "V1-R61": Predicate(
        hit_with_another_next_token, next_token_decides, only_with=speculation.lookahead
    ),
    "V1-R40": Predicate(
        *(hit_of_another_partition, could_hit_another_partition),
        only_with=partitions.are_possible,
    ),
}
