"""Speculative decoding: how drafts change what a client knows of a request.

After each token a drafter proposes more; the next step computes them with the last token, emits
those that are right and one more, and what was computed of the others does not count.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import Step
from .request_history import VllmRequestHistory

Config = Mapping[str, Any]


def drafts(config: Config) -> int:
    """Return the tokens that the drafter proposes after each token."""
    return int(config.get("num_speculative_tokens", 0))


def lookahead(config: Config) -> int:
    """Return the tokens beyond the computed ones for which a request holds blocks."""
    return int(config.get("num_lookahead_tokens", 0))


def most_ahead(config: Config) -> int:
    """Tokens beyond those known for which a request may need blocks: its drafts, those of the
    decision before where it is decided ahead, and the lookahead."""
    return (2 if decides_ahead(config) else 1) * drafts(config) + lookahead(config)


def decides_ahead(config: Config) -> bool:
    """Return whether a request is scheduled again while its last token is in flight. Drafts are
    then proposed with every decision, not after every token."""
    return bool(config.get("async_scheduling", False))


def drafts_to_compute(config: Config, request: VllmRequestHistory) -> int:
    """Drafts of a request that positions are left for; less than none where those in flight
    would be beyond the last position."""
    if not request.drafted:
        return 0
    return max(
        min(request.drafted, int(config["max_model_len"]) - 1 - request.num_tokens),
        -request.drafts_in_flight,
    )


def drafts_computed(request: VllmRequestHistory, tokens: int) -> int:
    """Return how many of the `tokens` that a running request computes are drafts."""
    return max(request.computed + tokens - request.num_tokens, 0)


def right(request: VllmRequestHistory, tokens: int) -> int:
    """Return how many of the drafts among these tokens are right."""
    return right_of(request, min(drafts_computed(request, tokens), request.drafted))


def right_of(request: VllmRequestHistory, drafts: int) -> int:
    """Return how many of `drafts` are right when the request verifies next."""
    if not drafts or not request.accepted:
        return 0
    return min(drafts, request.accepted[request.verified % len(request.accepted)])


def drafts_right(config: Config, request: VllmRequestHistory, step: Step, tokens: int) -> int:
    """How many drafts of a request are right that computes so many tokens in the step: all that it
    emits but the last one; as the scenario says, where the target does not show it. All that are
    decided ahead: only later it is known."""
    if drafts(config) and decides_ahead(config):
        return drafts_computed(request, tokens)
    if not request.drafted:
        return 0
    if step.emitted is None:
        return right(request, tokens)
    return max(min(step.emitted.get(request.id, 0) - 1, drafts_computed(request, tokens)), 0)


def slots(config: Config, covered: int) -> int:
    """Return the tokens for which a request holds blocks when its first `covered` are computed."""
    ahead = lookahead(config)
    return min(covered + ahead, int(config["max_model_len"])) if ahead else covered


def compute(config: Config, request: VllmRequestHistory, first: bool) -> None:
    """Book that tokens were computed, which `computed` already includes. With its `first` ones a
    request need not get the lookahead."""
    most = slots(config, request.computed)
    request.slots = max(request.slots, request.computed if first else most)
    request.most_slots = max(request.most_slots, most)


def verify(config: Config, request: VllmRequestHistory, verified: int) -> None:
    """Book that `verified` drafts were verified, after what the request emitted is booked: all
    known tokens but the last are computed, and the drafter proposes more, unless it has before."""
    request.verified += verified > 0
    request.computed = min(request.computed, request.num_tokens - 1)
    if not decides_ahead(config):
        request.drafted = drafts(config)
