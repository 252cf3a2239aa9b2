"""Which requests may start, which may join the decode batch, and which must not be refused.

Source: Spyre scheduling page, "Admission constraints"; release 2.5.2 for pools and pausing.
"""

from math import ceil

from ....model.observation import Step
from ...history.content import in_common, surely_shared
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.pool import held_before, tables_before
from ...rules.predicate import PHASES, Predicate
from ..history import REVISIONS_THAT_PAUSE


def empty_system_refuses(history: RunHistory, step: Step) -> str | None:
    """If nothing runs, check that the request that has waited longest starts (SPY-R38)."""
    if not nothing_runs(history, step) or history.prefill_members(step):
        return None
    return f"{history.unstarted()[0].id} waits, nothing runs, and no prefill starts"


def nothing_runs(history: RunHistory, step: Step) -> bool:
    unstarted = history.unstarted()
    return bool(unstarted) and len(unstarted) == len(history.live)


def joins_beyond_length(history: RunHistory, step: Step) -> str | None:
    """When a last chunk runs, check that every request's remaining tokens fit into max_model_len
    (SPY-R41)."""
    for request in joining(history, step):
        length = history.config["max_model_len"]
        ends = ends_after_joining(history, request)
        beyond = {name: end for name, end in ends.items() if end > length}
        if beyond:
            name = max(beyond, key=lambda other: beyond[other])
            return (
                f"{request.id} joins with {request.prompt} tokens: realigned, {name} may end at "
                f"{beyond[name]} > max_model_len {length}"
            )
    return None


def hit_joins_beyond_length(history: RunHistory, step: Step) -> str | None:
    """Check that max_model_len also limits a prompt reduced to its last chunk by a hit
    (SPY-R59)."""
    if not shortened(history, step):
        return None
    return joins_beyond_length(history, step)


def joining(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Return the requests whose last chunk runs and that have tokens left to generate."""
    emitted = step.emitted
    if not emitted:
        return []
    return [
        request
        for request in history.prefill_members(step)
        if emitted.get(request.id)
        and request.id not in history.aborts_inside
        and request.max_tokens > 1
    ]


def ends_after_joining(history: RunHistory, newcomer: RequestHistory) -> dict[str, int]:
    """Return the padded position that each member may reach if the members of the batch stay the
    same."""
    block = history.config["block_size"]
    all_requests = [
        (request.id, request.computed, request.max_tokens - request.emitted)
        for request in history.decoding()
    ]
    all_requests.append((newcomer.id, newcomer.prompt, newcomer.max_tokens - 1))
    width = max([tokens for _, tokens, _ in all_requests]) // block * block
    return {name: width + tokens % block + remaining for name, tokens, remaining in all_requests}


def length_binds(history: RunHistory, step: Step) -> bool:
    """Return whether a request of the batch could exceed max_model_len if the next request ran its
    last chunk."""
    wanted = (history.ongoing() or history.unstarted())[:1]
    return any(
        max(ends_after_joining(history, request).values()) > history.config["max_model_len"]
        for request in wanted
        if history.decoding() and request.max_tokens > 1
    )


def shortened(history: RunHistory, step: Step) -> bool:
    """Return whether some request decodes, and a prompt of several chunks needs only its last
    chunk."""
    return bool(history.decoding()) and any(
        not request.started and request.prompt > history.config["chunk_size"]
        for request in joining(history, step)
    )


def needless_refusal(history: RunHistory, step: Step) -> str | None:
    """Check that a decode step runs instead of a prefill only if a rule requires it (SPY-R42).

    Schedulers may project differently. A refusal is therefore wrong only if the volume stays within
    the limit even when the projection of release 2.1.2 gets one more block for realignment.
    """
    request = needlessly_refused(history, step)
    if request is None:
        return None
    return (
        f"{request.id} could run its next chunk: even the most careful projection stays within "
        "the limit"
    )


def needlessly_refused(history: RunHistory, step: Step) -> RequestHistory | None:
    """Return a request that does not prefill in this step although no rule prevents it, or None."""
    if history.prefill_members(step) or not history.decoding():
        return None
    wanted = (history.ongoing() or history.unstarted())[:1]
    if not wanted:
        return None
    if history.config["interleave"] and history.last_was_prefill:
        return None
    slots = history.config["max_num_seqs"]
    starts = not wanted[0].started
    if len(history.running()) + starts > slots:
        return None
    if starts and not pool_surely_has(history, step, wanted[0]):
        return None
    if history.revision in REVISIONS_THAT_PAUSE and (history.paused or history.config["pausing"]):
        return None if history.paused else wanted[0]
    # Without interleaving, releases check the volume only before the first chunk.
    checked_once = not history.config["interleave"] and history.revision in REVISIONS_THAT_PAUSE
    unchecked = not starts if checked_once else surely_unfinished(history, wanted[0])
    if not unchecked and not certainly_fits(history, wanted[0]):
        return None
    return wanted[0]


def pool_surely_has(history: RunHistory, step: Step, newcomer: RequestHistory) -> bool:
    """Return whether the pool certainly has room for the newcomer and every started request.

    There is room if there are free blocks for all tokens of the newcomer, except those shared with
    running requests. The last token needs no block, but may be promised one. The scheduling page
    does not describe a pool, so its revisions may promise each request one more block, and may
    count shared blocks as new.
    """
    size, block = history.config["num_blocks"], history.config["block_size"]
    if size is None:
        return True
    started = [request for request in history.live.values() if request.started]
    tables, held = tables_before(history), held_before(history)
    by_page = history.revision == "documented"
    shared = 0
    if history.config["prefix_caching"] and not by_page:
        shared = surely_shared(newcomer, started, history.kin(newcomer), block) // block
        if history.kept is not None:
            found = history.kept.must_find(history, step, newcomer, among=held)
            shared = max(shared, found // block)
    needed = len(held) - shared
    for request in (*started, newcomer):
        tokens = request.prompt + request.max_tokens
        needed += max(ceil(tokens / block) + by_page - len(tables.get(request.id, ())), 0)
    return bool(needed <= size)


def surely_unfinished(history: RunHistory, request: RequestHistory) -> bool:
    """Return whether the prompt certainly needs more chunks after the next one, whatever the prefix
    cache holds.

    A hit covers at most the tokens that another request has in common with the prompt.
    """
    left = request.prompt - request.computed
    if not request.started and history.config["prefix_caching"]:
        others = (other for other in history.kin(request) if other is not request)
        shared = (in_common(request, other) for other in others if other.max_computed)
        left -= max(shared, default=0)
    return left > int(history.config["chunk_size"])


def certainly_fits(history: RunHistory, newcomer: RequestHistory) -> bool:
    """Return whether the newcomer stays within the limits on length and volume no matter how the
    page is read, with two blocks to spare."""
    block, limit = history.config["block_size"], history.config["max_batch_tkv"]
    tokens = [request.computed for request in history.decoding()]
    longest = ceil(max(tokens) / block) * block
    base = max(longest, newcomer.prompt)
    top = base // block * block
    remaining = [request.max_tokens - request.emitted for request in history.decoding()]
    # The page does not say whether the request's own tkv counts, or that of the batch.
    reached = top + max(count % block for count in (*tokens, newcomer.prompt))
    # The last token is never computed, but the page counts it in the tkv.
    end = reached + max(*remaining, newcomer.max_tokens - 1) + 1
    keeps_length = history.revision not in REVISIONS_THAT_PAUSE
    if keeps_length and end > history.config["max_model_len"]:
        return False
    spare = 2 * block
    new = ceil((top + newcomer.prompt % block + newcomer.max_tokens - 1) / block) * block + spare
    projected = sorted(ceil((base + rest) / block) * block + spare for rest in remaining)
    rows = len(projected) + 1
    for position, reached in enumerate(projected):
        if (rows - position) * min(new, reached) > limit:
            return False
        if new <= reached:
            return True
    return bool(new <= limit)


def refusal_possible(history: RunHistory, step: Step) -> bool:
    """Return whether a request waits for its prefill, the batch has room, and no decode step is
    due."""
    return (
        bool(history.ongoing() or history.unstarted())
        and 0 < len(history.decoding()) < history.config["max_num_seqs"]
        and not (history.config["interleave"] and history.last_was_prefill)
    )


def promised_too_much(history: RunHistory, step: Step) -> str | None:
    """Check that the free blocks suffice for everything that admitted requests may still compute
    (SPY-R50)."""
    size = history.config["num_blocks"]
    if size is None:
        return None
    block = history.config["block_size"]
    held = {number for blocks in (step.blocks or {}).values() for number in blocks}
    needs = {
        name: max(ceil((request.prompt + request.max_tokens - 1) / block) - len(blocks), 0)
        for name, blocks in (step.blocks or {}).items()
        if (request := history.requests.get(name)) is not None
    }
    needed = sum(needs.values())
    if len(held) + needed <= size:
        return None
    which = ", ".join(f"{name}: {blocks}" for name, blocks in needs.items() if blocks)
    return f"{len(held)} blocks held and {needed} still needed ({which}), but the pool has {size}"


def pool_binds(history: RunHistory, step: Step) -> bool:
    size, block = history.config["num_blocks"], history.config["block_size"]
    if size is None:
        return False
    needed = [
        ceil((request.prompt + request.max_tokens - 1) / block) for request in history.live.values()
    ]
    return bool(sum(needed) > size)


def promise_kept_for_nobody(history: RunHistory, step: Step) -> str | None:
    """Check that no more blocks are promised than admitted requests may still need (SPY-P02)."""
    if not step.reserved_blocks:
        return None
    block, needed = history.config["block_size"], 0
    for name, blocks in (step.blocks or {}).items():
        request = history.requests.get(name)
        if request is not None:
            missing = ceil((request.prompt + request.max_tokens) / block) - len(blocks)
            if missing > 0:
                needed += missing
    if step.reserved_blocks <= needed:
        return None
    return f"{step.reserved_blocks} blocks promised; admitted requests need at most {needed} more"


def promised_request_leaves(history: RunHistory, step: Step) -> bool:
    leaving = [name for name, why in (step.finished or {}).items() if why in ("aborted", "eos")]
    return any(history.requests[name].started for name in leaving if name in history.requests)


PREDICATES = {
    "SPY-R38": Predicate(empty_system_refuses, nothing_runs, reads=(PHASES, "scheduled")),
    "SPY-R59": Predicate(hit_joins_beyond_length, shortened, "prefill"),
    "SPY-R41": Predicate(joins_beyond_length, length_binds),
    "SPY-R42": Predicate(needless_refusal, refusal_possible),
    "SPY-R50": Predicate(promised_too_much, pool_binds, reads=("blocks",)),
    "SPY-P02": Predicate(
        promise_kept_for_nobody,
        promised_request_leaves,
        reads=("blocks", "finished", PHASES, "reserved_blocks"),
    ),
}
