"""Tokens that a drafter proposes, and that the model verifies with the next step.

Source: chunked-prefill chapter, code of the running clamp, of allocate_slots and of preemption;
release 0.28.0: update_from_output. How many drafts are right is the scenario's to say.
"""

from . import kv_cache
from .config import VllmConfig
from .state import Coming, Sequence


def wanted(config: VllmConfig, sequence: Sequence) -> int:
    """Tokens of a running request that could be computed now: the known ones and its drafts, none
    beyond the last position that max_model_len leaves (V1-R02)."""
    return min(
        sequence.num_uncomputed_tokens + sequence.drafted,
        config.max_model_len - 1 - sequence.computed,
    )


def most_slots(config: VllmConfig, longest: int) -> int:
    """Tokens for which a request may need blocks at once, if `longest` of its own are computed:
    with its drafts, and where it is decided ahead with those of the decision before."""
    drafts = config.depth * config.drafts
    return kv_cache.slots(config, min(longest + drafts, config.max_model_len - 1))


def proposed(coming: Coming) -> int:
    """How many of the drafts that were computed the drafter has proposed: a request that joins may
    be padded with others."""
    return min(coming.drafts, coming.proposed)


def right(sequence: Sequence, drafts: int) -> int:
    """How many of the drafts that were computed with its last token are what the model says
    (V1CP-R35)."""
    if not drafts or not sequence.accepted:
        return 0
    return min(drafts, sequence.accepted[sequence.verified % len(sequence.accepted)])


def verified(config: VllmConfig, sequence: Sequence, drafts: int, emitted: int) -> Sequence:
    """The request after it emitted so many tokens: drafts that were wrong do not count as computed
    (V1CP-R05), and the drafter proposes others, unless it has before."""
    known = sequence.num_tokens + emitted + sequence.promised + sequence.hoped
    return sequence._replace(
        generated=sequence.generated + emitted,
        computed=min(sequence.computed, known - 1),
        drafted=sequence.drafted if config.depth > 1 else config.drafts,
        verified=sequence.verified + (drafts > 0),
    )
