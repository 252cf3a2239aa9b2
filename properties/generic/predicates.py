"""Predicates for any scheduler; they read only the step and the observations before it.

Source: target protocol, "The step observation"; the bounds in the configuration.
"""

from collections.abc import Iterator
from functools import partial

from ...model.observation import Step
from ..history.prefix_hits import caches
from ..rules.pool import blocks_for, must_be_found_again
from ..rules.predicate import Predicate
from ..vllm.history import speculation
from ..vllm.history.groups import are_several
from ..vllm.history.request_history import VllmRequestHistory as RequestHistory
from ..vllm.history.run import VllmRun as RunHistory
from ..vllm.history.run import state_of
from ..vllm.predicates.in_flight import (
    comes_late,
    out_of_turn,
    some_right_some_wrong,
    verified_wrongly,
)
from ..vllm.predicates.loads import PREDICATES as LOADS
from ..vllm.predicates.loads import one_is_loading, runs_too_early
from . import loads, pools, preempted, priorities, tokens_due
from .bounds import ahead


def too_few_blocks(history: RunHistory, step: Step) -> str | None:
    """Check that a request has blocks for all its computed tokens (GEN-R05)."""
    for name, tokens in (step.computed or {}).items():
        held = len((step.blocks or {}).get(name, ()))
        if name in history.live and held < blocks_for(history, tokens):
            room = held * history.config["block_size"]
            return f"{name} has {tokens} tokens computed, but blocks for only {room} of them"
    return pools.too_few_blocks(history, step)


def one_takes_another_block(history: RunHistory, step: Step) -> bool:
    before = (history.last.blocks or {}) if history.last is not None else {}
    return any(
        name in before and len(blocks) > len(before[name])
        for name, blocks in (step.blocks or {}).items()
    )


def shared_without_cache(history: RunHistory, step: Step) -> str | None:
    """Without a prefix cache, check that no block is held twice (GEN-R06)."""
    if caches(history.config):
        return None
    holder: dict[int, str] = {}
    for name, blocks in (step.blocks or {}).items():
        for block in blocks:
            if block in holder:
                twice = f"{name} holds block {block} twice"
                return twice if holder[block] == name else f"{holder[block]} and {twice[:-6]}"
            holder[block] = name
    return pools.held_twice(history, step)


def two_hold_blocks(history: RunHistory, step: Step) -> bool:
    holding = sum(bool(blocks) for blocks in (step.blocks or {}).values())
    return not caches(history.config) and holding > 1


def more_than_the_pool(history: RunHistory, step: Step) -> str | None:
    """Check that all requests together hold at most num_blocks blocks (GEN-R07)."""
    size, held = history.config["num_blocks"], _held(step)
    if size is None or held <= size:
        return pools.more_than_the_pool(history, step)
    return f"{held} blocks are held, but num_blocks is {size}"


def pool_is_taken(history: RunHistory, step: Step) -> bool:
    return bool(_held(step) == history.config["num_blocks"])


def _held(step: Step) -> int:
    return len({block for blocks in (step.blocks or {}).values() for block in blocks})


def emitted_too_early_or_late(history: RunHistory, step: Step) -> str | None:
    """Check that a request emits a token in exactly those steps after which all its tokens are
    computed, and never computes more than its known tokens (GEN-R08)."""
    if history.features.depth(history.config) > 1 or speculation.drafts(history.config):
        return tokens_due.emitted_too_early_or_late(history, step)
    for request, computed in _computed_after(history, step):
        known, emitted = request.prompt + request.emitted, (step.emitted or {}).get(request.id, 0)
        if computed > known:
            return f"{request.id} has {computed} tokens computed, but {known} are known"
        if emitted and computed < known:
            return f"{request.id} emits a token, but {computed} of its {known} tokens are computed"
        if not emitted and computed >= known:
            return f"{request.id} has all its {known} tokens computed, but emits none"
    return None


def one_is_computed_in_part(history: RunHistory, step: Step) -> bool:
    return any(computed < request.prompt for request, computed in _computed_after(history, step))


def counted_wrongly(history: RunHistory, step: Step) -> str | None:
    """Check that the computed tokens of a request start with its prefix hit and grow by its
    scheduled tokens, and that only a preemption resets them (GEN-R09)."""
    before = (history.last.computed or {}) if history.last is not None else {}
    for name, computed in (step.computed or {}).items():
        request = history.live.get(name)
        if request is None or name in {*(step.preempted or ()), *(step.parked or ())}:
            continue
        had, tokens = before.get(name), step.scheduled.get(name, 0)
        if request.tokens_loading and not request.started:
            continue  # what it starts with is judged by GEN-R19
        if had is None and step.prefix_hit is None and caches(history.config):
            continue  # how many tokens it found in the cache is not shown
        found = 0 if had is not None else (step.prefix_hit or {}).get(name, 0)
        wrong = tokens_due.rejected_drafts(history, step, name)
        if computed != (had or 0) + found + tokens - wrong:
            rejects = f" and rejects {wrong} drafts" if wrong else ""
            return (
                f"{name} has {computed} tokens computed; it had {had or 0}, found {found} in the "
                f"cache, and this step schedules {tokens}{rejects}"
            )
    return None


def one_continues(history: RunHistory, step: Step) -> bool:
    before = (history.last.computed or {}) if history.last is not None else {}
    return any(before.get(name) for name in step.scheduled)


def cut_although_off(history: RunHistory, step: Step) -> str | None:
    """With chunked prefill off, check that a scheduled request completes its prompt (GEN-R10)."""
    if history.config["enable_chunked_prefill"]:
        return None
    for request, computed in _computed_after(history, step):
        if computed < request.prompt:
            return (
                f"{request.id} has {computed} of {request.prompt} prompt tokens computed after "
                "its step"
            )
    return None


def starts_unchunked(history: RunHistory, step: Step) -> bool:
    if history.config["enable_chunked_prefill"]:
        return False
    return any(not request.started for request, _ in _computed_after(history, step))


def _computed_after(history: RunHistory, step: Step) -> Iterator[tuple[RequestHistory, int]]:
    """Yield the scheduled requests that stay unfinished, each with its computed tokens after the
    step."""
    leaves = {*(step.finished or ()), *(step.preempted or ()), *history.aborts_inside}
    for name, tokens in step.scheduled.items():
        request = history.live.get(name)
        if request is not None and tokens and name not in leaves:
            yield request, (step.computed or {}).get(name, 0)


def budget_exceeded(history: RunHistory, step: Step) -> str | None:
    """Check that a step computes at most max_num_batched_tokens tokens (GEN-R01)."""
    budget, tokens = history.config["max_num_batched_tokens"], sum(step.scheduled.values())
    if budget is None or tokens <= budget:
        return None
    return f"{tokens} tokens in a step, but max_num_batched_tokens is {budget}"


def budget_used_up(history: RunHistory, step: Step) -> bool:
    return bool(sum(step.scheduled.values()) == history.config["max_num_batched_tokens"])


def too_many_at_once(history: RunHistory, step: Step) -> str | None:
    """Check that a step computes tokens for at most max_num_seqs requests (GEN-R02)."""
    slots = history.config["max_num_seqs"]
    if slots is None or len(step.scheduled) <= slots:
        return None
    return f"{len(step.scheduled)} requests in a step, but max_num_seqs is {slots}"


def slots_are_taken(history: RunHistory, step: Step) -> bool:
    slots = history.config["max_num_seqs"]
    return slots is not None and len(step.scheduled) == slots < len(history.live)


def too_long(history: RunHistory, step: Step) -> str | None:
    """Check that the prompt and answer of a request have at most max_model_len tokens together, and
    that no draft is computed beyond that (GEN-R03)."""
    longest = history.config["max_model_len"]
    if longest is not None and speculation.drafts(history.config):
        for name, reached in tokens_due.reached(history, step).items():
            if reached > longest:
                return f"{name} computes {reached} tokens, but max_model_len is {longest}"
    for name, emitted in (step.emitted or {}).items():
        request = history.live.get(name)
        if longest is None or request is None:
            continue
        if emitted and request.prompt + request.emitted + emitted > longest:
            tokens = request.prompt + request.emitted + emitted
            return f"{name} has {tokens} tokens, but max_model_len is {longest}"
    return None


def reaches_the_maximum(history: RunHistory, step: Step) -> bool:
    longest = history.config["max_model_len"]
    live = history.live
    return any(
        name in live and tokens and live[name].prompt + live[name].emitted + tokens == longest
        for name, tokens in (step.emitted or {}).items()
    )


def overtaken(history: RunHistory, step: Step) -> str | None:
    """Under first come, first served, check that no request starts while an earlier one has never
    been scheduled (GEN-R04). Requests that can never run do not count."""
    if history.config["order"] != "fcfs":
        return None
    waits: RequestHistory | None = None
    for request in history.live.values():
        if request.id in history.aborts_inside and request.id not in step.scheduled:
            continue
        if _begun(request) or loads.may_be_passed(history, step, request):
            continue
        if not request.never_runnable and request.id not in step.scheduled:
            waits = waits or request
        elif waits is not None and step.scheduled.get(request.id):
            return f"{request.id} starts, but {waits.id} came before it and has not started"
    return None


def one_starts_before_another(history: RunHistory, step: Step) -> bool:
    if history.config["order"] != "fcfs":
        return False
    new = [request.id in step.scheduled for request in history.live.values() if not _begun(request)]
    return any(new) and not all(new)


def _begun(request: RequestHistory) -> bool:
    return request.max_computed > 0 or request.emitted > 0


def more_than_its_life(history: RunHistory, step: Step) -> str | None:
    """Check that a request holds no more blocks than its prompt and max_tokens can need
    (GEN-R12)."""
    for name, held in (step.blocks or {}).items():
        request = history.live.get(name)
        if request is None:
            continue
        most = blocks_for(history, request.prompt + request.max_tokens + ahead(history.config))
        if len(held) > most:
            return f"{name} holds {len(held)} blocks; its prompt and max_tokens need at most {most}"
    return pools.more_than_its_life(history, step, ahead(history.config))


def preempts_for_nobody(history: RunHistory, step: Step) -> str | None:
    """Check that a preempting step computes something, or leaves another request running or loaded
    (GEN-R13). The rule does not apply if blocks may be unavailable for a time: while a connector
    loads or sends them, or while an ended request keeps them for a decision in flight."""
    gone = set(step.preempted or ())
    if not gone or any(step.scheduled.values()):
        return None
    if history.features.may_compute_nothing(history, step):
        return None
    if any(flight.keys() - history.live.keys() for flight in state_of(history).flights):
        return None
    others = [request for request in history.live.values() if request.id not in gone]
    if any(request.started or request.tokens_loading for request in others):
        return None
    return f"{', '.join(sorted(gone))} preempted, nothing is computed, and no other request runs"


def one_is_preempted(history: RunHistory, step: Step) -> bool:
    return bool(step.preempted)


def _starting(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Return the scheduled requests, except those whose tokens a connector has loaded."""
    requests = [history.live[name] for name in step.scheduled if name in history.live]
    return [request for request in requests if not request.tokens_loading]


PREDICATES = {
    "GEN-R05": Predicate(too_few_blocks, one_takes_another_block),
    "GEN-R06": Predicate(shared_without_cache, two_hold_blocks, reads=("blocks", "group_blocks")),
    "GEN-R07": Predicate(more_than_the_pool, pool_is_taken, reads=("blocks", "group_blocks")),
    "GEN-R40": Predicate(
        pools.kept_out_of_the_window, pools.something_slides_out, only_with=are_several
    ),
    "GEN-R08": Predicate(emitted_too_early_or_late, one_is_computed_in_part),
    "GEN-R09": Predicate(counted_wrongly, one_continues),
    "GEN-R14": Predicate(out_of_turn, comes_late),
    "GEN-R15": Predicate(verified_wrongly, some_right_some_wrong),
    "GEN-R16": Predicate(partial(runs_too_early, until_next=False), one_is_loading),
    "GEN-R17": LOADS["V1-R23"],
    "GEN-R18": LOADS["V1-R25"],
    "GEN-R19": Predicate(loads.starts_with_too_much, loads.one_starts_with_loaded_tokens),
    "GEN-R20": LOADS["V1-R28"],
    "GEN-R21": Predicate(
        priorities.starts_before_a_more_important_one, priorities.some_start_some_wait
    ),
    "GEN-R22": Predicate(
        priorities.preempts_a_more_important_one, priorities.one_is_preempted_beside_others
    ),
    "GEN-R41": Predicate(
        preempted.overtaken_by_a_less_important_one, preempted.more_important_one_was_preempted
    ),
    "GEN-R42": Predicate(preempted.overtaken_by_a_later_one, preempted.one_was_preempted_earlier),
    "GEN-R10": Predicate(cut_although_off, starts_unchunked),
    "GEN-R01": Predicate(budget_exceeded, budget_used_up, reads=("scheduled",)),
    "GEN-R02": Predicate(too_many_at_once, slots_are_taken, reads=("scheduled",)),
    "GEN-R03": Predicate(too_long, reaches_the_maximum),
    "GEN-R04": Predicate(overtaken, one_starts_before_another),
    "GEN-R11": must_be_found_again(_starting),
    "GEN-R12": Predicate(
        more_than_its_life, one_takes_another_block, reads=("blocks", "group_blocks")
    ),
    "GEN-R13": Predicate(preempts_for_nobody, one_is_preempted),
}
