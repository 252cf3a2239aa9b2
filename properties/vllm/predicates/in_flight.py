"""Decisions in flight: which requests are skipped or not admitted, and which tokens arrive.

Source: release 0.28.0: the scheduler's comments on tokens that are in flight, AsyncScheduler;
chunked-prefill chapter, the code of the running clamp (num_output_placeholders).
"""

from ....model.observation import Step
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate
from ..history import cadence, in_flight, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, state_of
from .budget import scheduled
from .decision import (
    admitted,
    computed_after,
    input_missing,
    kept,
    lacks_budget_for_a_block,
    ran_before,
    round_may_end,
    surely_given,
    waited_before,
)


def lookahead_without_block(history: VllmRun, step: Step) -> str | None:
    """A running request has blocks for its tokens and for the drafter's lookahead (V1CP-R30)."""
    ahead = speculation.lookahead(history.config)
    for request in _look_ahead(history, step):
        held, slots = (step.blocks or {}).get(request.id), surely_given(history, step, request.id)
        if held is not None and len(held) < blocks_for(history, slots):
            return (
                f"{request.id} holds {len(held)} blocks; its computed tokens and {ahead} tokens "
                f"of lookahead need {blocks_for(history, slots)}"
            )
    return None


def lookahead_needs_block(history: VllmRun, step: Step) -> bool:
    return any(
        blocks_for(history, computed_after(history, step, request))
        < blocks_for(history, surely_given(history, step, request.id))
        for request in _look_ahead(history, step)
    )


def _look_ahead(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    return [request for request in scheduled(history, step) if request.started]


def verified_wrongly(history: VllmRun, step: Step) -> str | None:
    """A request emits the drafts that precede its first wrong draft, and one more token
    (V1CP-R35)."""
    for request, drafts in _verified(history, step):
        tokens = (step.emitted or {}).get(request.id)
        if not tokens or request.id in history.aborts_inside or not request.accepted:
            continue  # a recorded run does not say how many of its drafts are right
        right = speculation.correct_of(request, drafts)
        due = (
            1 + right if request.output_len is None else min(1 + right, max(request.tokens_left, 1))
        )
        if tokens != due:
            return (
                f"{request.id} emits {tokens} tokens; {right} of its {drafts} drafts are "
                f"correct, so it must emit {due}"
            )
    return None


def some_right_some_wrong(history: VllmRun, step: Step) -> bool:
    return any(
        0 < speculation.correct_of(request, drafts) < drafts
        for request, drafts in _verified(history, step)
    )


def _verified(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int]]:
    if in_flight.depth(history.config) == 1:
        return [
            (
                request,
                min(
                    speculation.drafts_computed(request, step.scheduled[request.id]),
                    request.drafted,
                ),
            )
            for request in scheduled(history, step)
        ]
    due = in_flight.completing_decision(history, step)
    return [
        (history.live[name], coming.proposed)
        for name, coming in due.items()
        if coming is not None and name in history.live
    ]


def scheduled_for_nothing(history: VllmRun, step: Step) -> str | None:
    """A request with nothing to compute yet is skipped, and the requests behind it are scheduled
    (V1-R06)."""
    passed = None
    remaining = history.config["max_num_batched_tokens"] - sum(step.scheduled.values())
    for request in ran_before(history):
        if request.id in (step.preempted or ()):
            continue
        if in_flight.passed_over(history.config, request):
            if request.id in step.scheduled and not request.rests:
                coming = (
                    f"{request.emitted} of {request.max_tokens} tokens, "
                    f"{request.tokens_in_flight} in flight"
                )
                return f"{request.id} is scheduled with {coming}"
            passed = request
        elif (
            history.pause == "pause_all"
            or round_may_end(history, request)
            or lacks_budget_for_a_block(history, step)
        ):
            return None
        elif input_missing(history, step, request, request.computed):
            continue  # the request stops at that input, and the round continues (V1-R33)
        elif cadence.may_wait(history, request):
            continue  # V1-R97
        elif passed and request.id not in step.scheduled and remaining > 0 and not step.preempted:
            return (
                f"{request.id} is not scheduled, although {passed.id} in front of it has nothing "
                "to compute"
            )
    return None


def passed_over_beside_others(history: VllmRun, step: Step) -> bool:
    some = any(in_flight.passed_over(history.config, request) for request in kept(history, step))
    return some and bool(step.scheduled)


def out_of_its_turn(history: VllmRun, step: Step) -> str | None:
    """While the stages of a pipeline are busy with its last token, a running request is not
    scheduled (V1-R50)."""
    for request in _resting(history, step):
        if request.id in step.scheduled:
            turn = in_flight.turn(history.config)
            since = turn - request.rests
            return (
                f"{request.id} is scheduled {since} steps after the decision that yields its last "
                f"token; in a pipeline of {turn} stages, it must wait for {turn} steps"
            )
    return None


def someone_rests(history: VllmRun, step: Step) -> bool:
    return any(True for _ in _resting(history, step))


def _resting(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    return [request for request in kept(history, step) if request.rests]


def admitted_too_early(history: VllmRun, step: Step) -> str | None:
    """A preempted request is not admitted while a decision in flight still computes it (V1-R10)."""
    for request in admitted(history, step):
        if in_flight.is_still_computed(history, request):
            return f"{request.id} is admitted again while a step in flight still computes it"
    return None


def one_is_set_aside(history: VllmRun, step: Step) -> bool:
    if step.preempted or not state_of(history).flights:
        return False
    return any(in_flight.is_still_computed(history, request) for request in waited_before(history))


def out_of_turn(history: VllmRun, step: Step) -> str | None:
    """Each token of a request arrives once, and they arrive in order (V1-R19)."""
    for name, place in (step.emitted_at or {}).items():
        request = history.live.get(name)
        if request is not None and place != request.emitted:
            return f"{name} emits token {place} of its output after {request.emitted} arrived"
    for name, tokens in (step.emitted or {}).items():
        if tokens and step.emitted_at is not None and name not in step.emitted_at:
            return f"{name} emits {tokens} tokens, but emitted_at does not give their position"
    return None


def comes_late(history: VllmRun, step: Step) -> bool:
    return bool(step.emitted_at)


PREDICATES = {
    "V1CP-R30": Predicate(
        lookahead_without_block, lookahead_needs_block, only_with=speculation.lookahead
    ),
    "V1CP-R35": Predicate(verified_wrongly, some_right_some_wrong, only_with=speculation.drafts),
    "V1-R06": Predicate(scheduled_for_nothing, passed_over_beside_others),
    "V1-R50": Predicate(out_of_its_turn, someone_rests, only_with=in_flight.turn),
    "V1-R10": Predicate(admitted_too_early, one_is_set_aside),
    "V1-R19": Predicate(out_of_turn, comes_late),
}
