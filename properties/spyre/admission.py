"""Who may start, who may join the decode batch, and who must not be refused.

Source: Spyre scheduling page, "Admission constraints"; release 2.5.2 for pools and pausing.
"""

from math import ceil

from ...model.observation import Step
from ..ledger import REVISIONS_THAT_PAUSE, Account, Ledger
from ..predicate import Predicate


def empty_system_refuses(ledger: Ledger, step: Step) -> str | None:
    """While nothing runs, who has waited longest starts (SPY-R38)."""
    if not nothing_runs(ledger, step) or ledger.prefill_members(step):
        return None
    return f"{ledger.unstarted()[0].id} waits, nothing runs, and no prefill starts"


def nothing_runs(ledger: Ledger, step: Step) -> bool:
    """A request waits and no other is unfinished."""
    unstarted = ledger.unstarted()
    return bool(unstarted) and len(unstarted) == len(ledger.live)


def joins_beyond_length(ledger: Ledger, step: Step) -> str | None:
    """At the last chunk, what everyone may still generate ends within max_model_len (SPY-R41)."""
    for one in joining(ledger, step):
        length = ledger.config["max_model_len"]
        ends = ends_after_joining(ledger, one)
        beyond = {name: end for name, end in ends.items() if end > length}
        if beyond:
            name = max(beyond, key=lambda other: beyond[other])
            return (
                f"{one.id} joins with {one.prompt} tokens: realigned, {name} may end at "
                f"{beyond[name]} > max_model_len {length}"
            )
    return None


def hit_joins_beyond_length(ledger: Ledger, step: Step) -> str | None:
    """The same for a prompt whose first chunk is its last thanks to a prefix hit (SPY-R59)."""
    if not shortened(ledger, step):
        return None
    return joins_beyond_length(ledger, step)


def joining(ledger: Ledger, step: Step) -> list[Account]:
    """Requests that decode from the next step on: their last chunk runs, and leaves a token."""
    emitted = step.emitted
    if not emitted:
        return []
    return [
        one
        for one in ledger.prefill_members(step)
        if emitted.get(one.id) and one.id not in ledger.aborts_inside and one.max_tokens > 1
    ]


def ends_after_joining(ledger: Ledger, newcomer: Account) -> dict[str, int]:
    """Padded position that each member of the batch may reach, if nobody joins or leaves."""
    block = ledger.config["block_size"]
    everyone = [(one.id, one.computed, one.max_tokens - one.emitted) for one in ledger.decoding()]
    everyone.append((newcomer.id, newcomer.prompt, newcomer.max_tokens - 1))
    width = max([tokens for _, tokens, _ in everyone]) // block * block
    return {name: width + tokens % block + left for name, tokens, left in everyone}


def length_binds(ledger: Ledger, step: Step) -> bool:
    """The head of the queue or the ongoing prefill would end beyond max_model_len in the batch."""
    wanted = (ledger.ongoing() or ledger.unstarted())[:1]
    return any(
        max(ends_after_joining(ledger, one).values()) > ledger.config["max_model_len"]
        for one in wanted
        if ledger.decoding() and one.max_tokens > 1
    )


def shortened(ledger: Ledger, step: Step) -> bool:
    """A prompt of several chunks needs only its last, beside a decoding request."""
    return bool(ledger.decoding()) and any(
        not one.started and one.prompt > ledger.config["chunk_size"]
        for one in joining(ledger, step)
    )


def needless_refusal(ledger: Ledger, step: Step) -> str | None:
    """A decode step runs instead of a chunk only if a rule asks for it (SPY-R42, SPY-R47).

    The projection is free within bounds: a refusal is wrong if even one block more than release
    2.1.2 allows for realignment leaves the volume within the limit.
    """
    one = refused(ledger, step)
    if one is None:
        return None
    return f"{one.id} could run its next chunk, and even the most careful projection fits"


def refused(ledger: Ledger, step: Step) -> Account | None:
    """Who would prefill in this step, is not held back by any rule, and does not run."""
    if ledger.prefill_members(step) or not ledger.decoding():
        return None
    wanted = (ledger.ongoing() or ledger.unstarted())[:1]
    if not wanted:
        return None
    if ledger.config["interleave"] and ledger.last_was_prefill:
        return None
    seats = ledger.config["max_num_seqs"]
    starts = not wanted[0].started
    if len(ledger.running()) + starts > seats:
        return None
    if starts and ledger.config["num_blocks"] is not None:
        return None
    if ledger.revision in REVISIONS_THAT_PAUSE and (ledger.paused or ledger.config["pausing"]):
        return None if ledger.paused else wanted[0]
    if not surely_unfinished(ledger, wanted[0]) and not certainly_fits(ledger, wanted[0]):
        return None
    return wanted[0]


def surely_unfinished(ledger: Ledger, one: Account) -> bool:
    """More chunks follow after the next, whatever the prefix cache has."""
    if not one.started and ledger.config["prefix_caching"]:
        return False
    return one.prompt - one.computed > int(ledger.config["chunk_size"])


def certainly_fits(ledger: Ledger, newcomer: Account) -> bool:
    """Length and volume hold by the widest reading of the batch's tkv and two blocks to spare."""
    block, limit = ledger.config["block_size"], ledger.config["max_batch_tkv"]
    tokens = [one.computed for one in ledger.decoding()]
    longest = ceil(max(tokens) / block) * block
    base = max(longest, newcomer.prompt)
    top = base // block * block
    left = [one.max_tokens - one.emitted for one in ledger.decoding()]
    ends = [top + count % block + rest for count, rest in zip(tokens, left, strict=True)]
    ends.append(top + newcomer.prompt % block + newcomer.max_tokens - 1)
    keeps_length = ledger.revision not in REVISIONS_THAT_PAUSE
    if keeps_length and max(ends) > ledger.config["max_model_len"]:
        return False
    spare = 2 * block
    new = ceil((top + newcomer.prompt % block + newcomer.max_tokens - 1) / block) * block + spare
    projected = sorted(ceil((base + rest) / block) * block + spare for rest in left)
    rows = len(projected) + 1
    for position, reached in enumerate(projected):
        if (rows - position) * min(new, reached) > limit:
            return False
        if new <= reached:
            return True
    return bool(new <= limit)


def refusal_possible(ledger: Ledger, step: Step) -> bool:
    """A prefill is wanted beside a decode batch that has room, and no interleaving is due."""
    return (
        bool(ledger.ongoing() or ledger.unstarted())
        and 0 < len(ledger.decoding()) < ledger.config["max_num_seqs"]
        and not (ledger.config["interleave"] and ledger.last_was_prefill)
    )


def promised_too_much(ledger: Ledger, step: Step) -> str | None:
    """Blocks for everything that the admitted may still compute are free (SPY-R50)."""
    size = ledger.config["num_blocks"]
    if size is None:
        return None
    block = ledger.config["block_size"]
    held = {number for blocks in (step.blocks or {}).values() for number in blocks}
    needed = sum(
        max(ceil((one.prompt + one.max_tokens - 1) / block) - len(blocks), 0)
        for name, blocks in (step.blocks or {}).items()
        if (one := ledger.accounts.get(name)) is not None
    )
    if len(held) + needed <= size:
        return None
    return f"{len(held)} blocks held and {needed} still needed, the pool has {size}"


def pool_binds(ledger: Ledger, step: Step) -> bool:
    """The unfinished requests together need more blocks than the pool has."""
    size, block = ledger.config["num_blocks"], ledger.config["block_size"]
    if size is None:
        return False
    needed = [ceil((one.prompt + one.max_tokens - 1) / block) for one in ledger.live.values()]
    return bool(sum(needed) > size)


def promise_kept_for_nobody(ledger: Ledger, step: Step) -> str | None:
    """No more blocks are promised than the admitted may still need (SPY-P02)."""
    if not step.reserved_blocks:
        return None
    block, needed = ledger.config["block_size"], 0
    for name, blocks in (step.blocks or {}).items():
        one = ledger.accounts.get(name)
        if one is not None:
            missing = ceil((one.prompt + one.max_tokens) / block) - len(blocks)
            if missing > 0:
                needed += missing
    if step.reserved_blocks <= needed:
        return None
    return f"blocks promised: {step.reserved_blocks}; the admitted need {needed} more at most"


def promised_request_leaves(ledger: Ledger, step: Step) -> bool:
    """A request that was promised blocks is aborted, or ends before its time."""
    leaving = [name for name, why in (step.finished or {}).items() if why in ("aborted", "eos")]
    return any(ledger.accounts[name].started for name in leaving if name in ledger.accounts)


PREDICATES = {
    "SPY-R38": Predicate(empty_system_refuses, nothing_runs),
    "SPY-R59": Predicate(hit_joins_beyond_length, shortened, "prefill"),
    "SPY-R41": Predicate(joins_beyond_length, length_binds),
    "SPY-R42": Predicate(needless_refusal, refusal_possible),
    "SPY-R50": Predicate(promised_too_much, pool_binds),
    "SPY-P02": Predicate(promise_kept_for_nobody, promised_request_leaves),
}
