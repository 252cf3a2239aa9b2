"""Tokens that a drafter proposes, and that the model verifies with the next step.

Source: chunked-prefill chapter, code of the running clamp, of allocate_slots and of preemption;
release 0.28.0: update_from_output. How many drafts are right is the scenario's to say.
"""

from .config import VllmConfig
from .state import Sequence


def wanted(config: VllmConfig, one: Sequence) -> int:
    """Tokens of a running request that could be computed now: the known ones and its drafts, none
    beyond the last position that max_model_len leaves (V1-R02)."""
    if not one.drafted:
        return one.num_uncomputed_tokens
    return min(one.num_tokens + one.drafted, config.max_model_len - 1) - one.computed


def slots(config: VllmConfig, covered: int) -> int:
    """Tokens for which a request holds blocks whose first `covered` tokens are computed
    (V1CP-R30)."""
    return min(covered + config.lookahead, config.max_model_len)


def most_slots(config: VllmConfig, longest: int) -> int:
    """Tokens for which a request may need blocks at once, if `longest` of its own are computed."""
    return slots(config, min(longest + config.drafts, config.max_model_len - 1))


def right(one: Sequence) -> int:
    """How many of the drafts that were computed with its last token are what the model says
    (V1CP-R35)."""
    computed = one.computed - one.num_tokens
    if computed <= 0 or not one.accepted:
        return 0
    return min(computed, one.accepted[one.verified % len(one.accepted)])


def verified(config: VllmConfig, one: Sequence, emitted: int) -> Sequence:
    """The request after it emitted so many tokens: drafts that were wrong do not count as computed
    (V1CP-R05), and the drafter proposes others."""
    return one._replace(
        generated=one.generated + emitted,
        computed=min(one.computed, one.num_tokens + emitted + one.promised - 1),
        drafted=config.drafts,
        verified=one.verified + (one.computed > one.num_tokens),
    )
