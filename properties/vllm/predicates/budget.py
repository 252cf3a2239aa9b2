"""The tokens that each request computes: the clamp, the budget, and when a token is emitted.

Source: cheat-sheet, "schedule() shape" and "The four/five invariants"; chunked-prefill chapter,
"Slicing the long prefill".
"""

from itertools import takewhile

from ....model.observation import Step
from ...rules.pool import blocks_before, blocks_for, free_when_decided, perhaps_preempted, taken_by
from ...rules.predicate import Predicate, in_words
from ..history import groups, in_flight, loads, mamba, speculation, synchronous
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import (
    admitted,
    behind,
    computed_after,
    fair_share,
    has_output,
    kept,
    missing,
    padding,
    preempted,
    prefill_limit,
    ran_before,
    since,
    stops_ahead,
    threshold,
    threshold_adapts,
)


def budget_exceeded(history: VllmRun, step: Step) -> str | None:
    """The tokens of a step are within the budget (V1-I2)."""
    tokens, budget = sum(step.scheduled.values()), history.config["max_num_batched_tokens"]
    if tokens <= budget:
        return None
    return f"{tokens} tokens scheduled > max_num_batched_tokens {budget}"


def budget_binds(history: VllmRun, step: Step) -> bool:
    wanted = sum(request.num_tokens - request.computed for request in history.live.values())
    return bool(wanted > history.config["max_num_batched_tokens"])


def beyond_known(history: VllmRun, step: Step) -> str | None:
    """A scheduled request computes one or more tokens, each of them known or padding (V1-R02)."""
    for name, known in missing(history, step).items():
        tokens = step.scheduled[name]
        if known is None or 1 <= tokens <= known:
            continue
        request = history.live[name]
        more = padding(history, step, request) or last_draft(history, request)
        if not more or tokens != known + more:
            return f"{name} computes {tokens} tokens, but {known} are known and not computed"
    return None


def some_finish_behind_others(history: VllmRun, step: Step) -> bool:
    left = missing(history, step).values()
    return 1 in left and any(tokens is not None and tokens > 1 for tokens in left)


def threshold_exceeded(history: VllmRun, step: Step) -> str | None:
    """No request computes more than the threshold (V1-R11). In some revisions, this does not apply
    to the only unfinished request."""
    limit = prefill_limit(history)
    for name, tokens in step.scheduled.items():
        if 0 < limit < tokens:
            return f"{name} computes {tokens} tokens > long_prefill_token_threshold {limit}"
    return None


def threshold_binds(history: VllmRun, step: Step) -> bool:
    """A request has more tokens left to compute than the threshold, which is below the budget."""
    limit = threshold(history)
    if limit == history.config["max_num_batched_tokens"]:
        return False
    left = missing(history, step).values()
    return any(tokens is not None and tokens > limit for tokens in left)


def below_its_share(history: VllmRun, step: Step) -> str | None:
    """The threshold cuts no request below its share of the budget (V1-R88)."""
    share, limit = fair_share(history), history.config["long_prefill_token_threshold"]
    spent = sum(step.scheduled.values()) >= history.config["max_num_batched_tokens"]
    if not share or spent or groups.aligns(history.config):
        return None
    for name, left in missing(history, step).items():
        tokens = step.scheduled[name]
        if left is None or stops_at_input(history, step, history.live[name]):
            continue
        if tokens == limit < min(left, share):
            return (
                f"{name} computes {tokens} of {left} tokens, although its share of the budget is "
                f"{share} tokens"
            )
    return None


def share_is_above_the_threshold(history: VllmRun, step: Step) -> bool:
    limit = history.config["long_prefill_token_threshold"]
    return bool(limit) and fair_share(history) > limit and bool(step.scheduled)


def running_clamp(history: VllmRun, step: Step) -> str | None:
    """A running request computes all its uncomputed tokens, limited by the threshold and the budget
    (V1-R04)."""
    return _cut_wrongly(history, step, ran_before(history))


def running_is_cut(history: VllmRun, step: Step) -> bool:
    return _is_cut(history, step, kept(history, step))


def waiting_clamp(history: VllmRun, step: Step) -> str | None:
    """An admitted request computes all its uncomputed tokens, limited by the threshold and the
    budget (V1CP-R02)."""
    return _cut_wrongly(history, step, admitted(history, step))


def newcomer_is_cut(history: VllmRun, step: Step) -> bool:
    return _is_cut(history, step, admitted(history, step))


def chunked_although_off(history: VllmRun, step: Step) -> str | None:
    """With chunking off, no prompt starts if the budget would cut it (V1CP-R07).

    The threshold may cut it, since releases apply the threshold before the budget.
    """
    if history.config["enable_chunked_prefill"]:
        return None
    for request in admitted(history, step):
        left = behind(history, step, request)
        if left is None or stops_at_input(history, step, request):
            continue
        if step.scheduled[request.id] < min(left, prefill_limit(history) or left):
            return (
                f"{request.id} starts with {step.scheduled[request.id]} of {left} tokens, "
                "although prompts are not chunked"
            )
    return None


def prompt_too_long_for_now(history: VllmRun, step: Step) -> bool:
    if history.config["enable_chunked_prefill"]:
        return False
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    return any(
        request.num_tokens > remaining > 0
        for request in history.unstarted()
        if request.id not in step.scheduled
    )


def emission_wrong(history: VllmRun, step: Step) -> str | None:
    """A request emits a token, or several with drafts, exactly when all its known tokens are
    computed (V1-I4)."""
    emitted = step.emitted or {}
    if history.features.depth(history.config) > 1:
        return _delivered_wrongly(history, step)
    drafts = speculation.drafts(history.config)
    for name, left in missing(history, step).items():
        if left is None or name in history.aborts_inside:
            continue
        request, tokens = history.live[name], step.scheduled[name]
        own = left - speculation.drafts_to_compute(history.config, request)
        caught_up = tokens >= own if drafts else tokens == left
        emits = emitted.get(name, 0)
        if not _emits_as_due(caught_up, emits, drafts):
            if name in synchronous.may_fall_back(history, step):
                continue  # judged by V1-R92
            known = f"computed + scheduled = {request.num_tokens - own + tokens}"
            return (
                f"{name} emits {in_words(emits)} with {known} of {request.num_tokens} known tokens"
            )
    return None


def _emits_as_due(comes: bool, emits: int, drafts: int) -> bool:
    """Return whether a request emits as many tokens as it should. If `comes` is False, it should
    emit none; otherwise one, or more with drafts."""
    return comes == (emits > 0) and (drafts > 0 or emits <= 1)


def _delivered_wrongly(history: VllmRun, step: Step) -> str | None:
    for name, due in in_flight.completing_decision(history, step).items():
        if name not in history.live or name in history.aborts_inside:
            continue
        comes, emits = due is not None, (step.emitted or {}).get(name, 0)
        if comes and _may_be_dropped(history, step, history.live[name]):
            continue
        if not _emits_as_due(comes, emits, speculation.drafts(history.config)):
            if comes and emits > 1:
                return f"{name} emits {emits} tokens, but at most one is due"
            known = "all" if comes else "not all"
            says = in_words(emits)
            return f"{name} emits {says}, although {known} of its known tokens have been computed"
    return None


def _may_be_dropped(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a token in flight may be lost because its request was preempted in the
    meantime.

    No document says that such a token must arrive, and with a connector that passes blocks on, the
    request is computed again (release 0.28.0: KVConnectorBase_V1.requires_kv_delivery).
    """
    now = request.id in (step.preempted or ())
    was_preempted = now or (request.preemptions > 0 and not request.tokens_in_flight)
    dropped = loads.are_made(history.config) or history.revision not in since("0.25")
    return was_preempted and dropped


def some_catch_up(history: VllmRun, step: Step) -> bool:
    return bool(history.prefill_members(step))


def stops_at_input(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a scheduled request stops because the output of an encoder input is missing.
    It stops right before the input or, if its drafter reads ahead, that many tokens earlier."""
    reached = computed_after(history, step, request)
    stops = (reached, reached + stops_ahead(history))
    inputs = [image for image in request.inputs if image.start in stops]
    return not all(has_output(history, step, image) for image in inputs)


def scheduled(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    return [history.live[name] for name in step.scheduled if name in history.live]


def _cut_wrongly(history: VllmRun, step: Step, who: list[VllmRequestHistory]) -> str | None:
    """Return a message if one of these requests got the wrong number of tokens.

    The budget is spent in scheduling order. If a request that was preempted under the priority
    policy returned its share, the order does not reveal how much was left for each request.
    """
    if not who:
        return None
    if history.config["policy"] == "priority" and preempted(history, step):
        return _share_lost(history, step, who)
    wanted = {request.id for request in who}
    remaining, limit = history.config["max_num_batched_tokens"], threshold(history)
    for name, left in missing(history, step).items():
        tokens = step.scheduled[name]
        least = left if left is None else min(left, limit, remaining)
        if tokens == least and not groups.aligns(history.config):
            remaining -= tokens
            continue
        request = history.live[name]
        stops = least is not None and tokens < least and stops_at_input(history, step, request)
        more = padding(history, step, request)
        # A request is padded only if it has one token to compute.
        if more and tokens == 1 + more <= remaining:
            least = tokens
        last = last_draft(history, request)
        if left is not None and last and tokens == min(left + last, limit, remaining):
            least = tokens
        if least is not None and groups.aligns(history.config):
            least = aligned_tokens(history, step, request, least)
        if left is not None and name in wanted and tokens != least and not stops:
            most = min(left, limit, remaining)
            whole = "" if least == most else "; the chunk must end at a block boundary"
            return (
                f"{name} computes {tokens} tokens, but should compute {least}: it needs {left}, "
                f"may compute {limit}, and {remaining} tokens of the budget are left{whole}"
            )
        remaining -= tokens
    return None


def _share_lost(history: VllmRun, step: Step, who: list[VllmRequestHistory]) -> str | None:
    """Return a message if a request got less than it could, although enough of the budget is left.

    A preemption returns the victim's share to the budget, but perhaps too late for the request. So
    only the part of the remaining budget that exceeds these shares counts. A share was not late for
    a request that took no block, because it has not preempted any other request, nor for a request
    whose turn came after the preemption.
    """
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    limit, size = threshold(history), history.config["block_size"]
    wanted = {request.id for request in who}
    shares = sum(
        min(request.num_tokens - request.computed + max(request.drafted, 0), limit)
        for request in preempted(history, step)
    )
    for name, left in missing(history, step).items():
        request, tokens = history.live[name], step.scheduled[name]
        if left is None or name not in wanted:
            continue
        most = min(left, limit)
        if groups.aligns(history.config):
            most = aligned_tokens(history, step, request, most)
        if tokens >= most:
            continue
        if groups.aligns(history.config):
            remaining -= size  # less than a block may be of no use
        took = taken_by(history, step, request, size) or groups.begins_a_block(
            history.config, request.computed, request.computed + tokens
        )
        back = 0 if not took or _came_back_before(history, step, request, tokens) else shares
        if remaining > back and not stops_at_input(history, step, request):
            return (
                f"{name} computes {tokens} tokens; it needs {left}, may compute {limit}, and "
                f"{remaining} tokens of the budget are left, of which at most {back} were "
                "returned by preempted requests"
            )
    return None


def _came_back_before(
    history: VllmRun, step: Step, request: VllmRequestHistory, tokens: int
) -> bool:
    """Return whether the share of the only victim was back in the budget before the turn of a
    request that computes `tokens` tokens.

    What the requests before it and the request itself left of the budget must be the share.
    However, the blocks for this share and those of the requests before were more than were free.
    """
    gone, free = preempted(history, step), free_when_decided(history)
    # Windows give back blocks within a step.
    windows = any(group["kind"] != "full" for group in history.config.get("kv_groups", ()))
    if free is None or step.blocks is None or windows or len(gone) != 1:
        return False
    if perhaps_preempted(history, step):
        return False
    before = [*takewhile(lambda name: name != request.id, step.scheduled)]
    spent = sum(step.scheduled[name] for name in before)
    share = int(history.config["max_num_batched_tokens"]) - spent - tokens
    taken = blocks_for(history, gone[0].computed + share) - blocks_before(history, gone[0])
    for name in before:
        taken += len(step.blocks.get(name, ())) - blocks_before(history, history.live[name])
    return taken > free


def aligned_tokens(history: VllmRun, step: Step, request: VllmRequestHistory, tokens: int) -> int:
    """Return how many of `tokens` tokens a request computes if chunks must end at block boundaries.

    A chunk may end even earlier, at a boundary up to which other requests have computed the same
    tokens.
    """
    end, size = computed_after(history, step, request), int(history.config["block_size"])
    start = end - step.scheduled[request.id]
    before_end = history.revision in since("0.33")
    most = mamba.end_of_chunk(history.config, request, start, tokens, before_end=before_end)
    shared = end < most and not end % size and end <= history.max_hit(step, request)
    return (end if shared else most) - start


def last_draft(history: VllmRun, request: VllmRequestHistory) -> int:
    """Return 1 if a request may compute a draft at the last position, because no document of this
    revision forbids it; otherwise 0."""
    if not request.drafted or history.revision in since("0.25"):
        return 0
    return int(request.drafted > speculation.drafts_to_compute(history.config, request) >= 0)


def _is_cut(history: VllmRun, step: Step, who: list[VllmRequestHistory]) -> bool:
    left = missing(history, step)
    tokens = [(step.scheduled[r.id], left[r.id]) for r in who if r.id in step.scheduled]
    return any(known is not None and computed < known for computed, known in tokens)


PREDICATES = {
    "V1-I2": Predicate(budget_exceeded, budget_binds),
    "V1-R02": Predicate(beyond_known, some_finish_behind_others),
    "V1-R88": Predicate(below_its_share, share_is_above_the_threshold, only_with=threshold_adapts),
    "V1-R11": Predicate(threshold_exceeded, threshold_binds),
    "V1-R04": Predicate(running_clamp, running_is_cut),
    "V1CP-R02": Predicate(waiting_clamp, newcomer_is_cut),
    "V1CP-R07": Predicate(chunked_although_off, prompt_too_long_for_now),
    "V1-I4": Predicate(emission_wrong, some_catch_up),
}
