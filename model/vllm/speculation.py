"""Drafts: tokens that a drafter proposes, and that the model verifies in the next step.

Source: chunked-prefill chapter, the code of the running clamp, allocate_slots and preemption;
release 0.28.0: update_from_output. The scenario says how many drafts are correct.
"""

from . import grammars, kv_cache
from .config import VllmConfig
from .queue import Plan
from .state import Coming, Flight, Sequence


def wanted(config: VllmConfig, sequence: Sequence) -> int:
    """Return how many tokens of a running request could be computed now. Its known tokens and its
    drafts count, up to the last position that max_model_len allows (V1-R02)."""
    return min(
        sequence.num_uncomputed_tokens + sequence.drafted,
        config.max_model_len - 1 - sequence.computed,
    )


def most_slots(config: VllmConfig, longest: int) -> int:
    """Return the largest number of tokens for which a request with `longest` computed tokens may
    need blocks at once. Its drafts count, and so do those of a decision made ahead."""
    drafts = config.drafts * (config.depth if config.decides_ahead else 1)
    return kv_cache.slots(config, min(longest + drafts, config.max_model_len - 1))


def drafts_after(config: VllmConfig, requests: int) -> int:
    """Return how many drafts are proposed after a step with this many requests."""
    ranges = config.num_speculative_tokens_per_batch_size or ((1, 1, config.drafts),)
    return min([drafts for first, _, drafts in ranges if first <= requests][-1], config.drafts)


def lapse(plan: Plan) -> Plan:
    """Take the drafts from running requests that the plan leaves out (V1-R68), and return the plan.
    If the plan schedules nothing, it is never sent, so no drafts are lost."""
    if plan.scheduled.keys() >= {request.id for request in plan.running} or not plan.scheduled:
        return plan
    running = [
        request if request.id in plan.scheduled else request._replace(drafted=0)
        for request in plan.running
    ]
    return plan._replace(running=tuple(running))


def proposed(sequence: Sequence, coming: Coming) -> int:
    """Return how many of the computed drafts the drafter has proposed. If the request has a
    grammar, count only the drafts that fit it. The other drafts pad a joining request or are
    rejected.
    """
    drafts = min(coming.drafts, coming.proposed)
    if sequence.grammar is None:
        return drafts
    return grammars.fitting(sequence.grammar, sequence.generated, drafts)


def correct_drafts(sequence: Sequence, drafts: int) -> int:
    """Return how many of the drafts that are computed together with the request's last token are
    correct (V1CP-R35)."""
    if not drafts or not sequence.accepted:
        return 0
    return min(drafts, sequence.accepted[sequence.verified % len(sequence.accepted)])


def emit(
    config: VllmConfig, sequence: Sequence, coming: Coming, flight: Flight, remaining: int
) -> tuple[Sequence, int]:
    """Return the request after a decision has verified its drafts, and the number of tokens that it
    emits, which is at most `remaining`."""
    drafts = proposed(sequence, coming)
    emitted = min(1 + correct_drafts(sequence, drafts), remaining)
    return verify(config, sequence, drafts, emitted, flight), emitted


def verify(
    config: VllmConfig, sequence: Sequence, drafts: int, emitted: int, flight: Flight
) -> Sequence:
    """Return the request after it emitted `emitted` tokens of the decision `flight`. Wrong drafts
    do not count as computed (V1CP-R05). The drafter proposes new drafts, unless it has already done
    so or the request was preempted."""
    keeps = config.decides_ahead or not sequence.blocks
    known = sequence.num_tokens + emitted + sequence.promised + sequence.hoped
    if sequence.begun:
        wrong = max(sequence.computed - known + 1, 0)
        sequence = sequence._replace(begun=tuple([before - wrong for before in sequence.begun]))
    sequence = sequence._replace(
        generated=sequence.generated + emitted,
        computed=min(sequence.computed, known - 1),
        drafted=sequence.drafted if keeps else drafts_after(config, len(flight)),
        verified=sequence.verified + (drafts > 0),
    )
    return sequence if keeps else grammars.without_misfits(sequence)
