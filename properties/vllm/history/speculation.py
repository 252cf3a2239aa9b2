"""What speculative decoding does to what a client knows of a request.

After each token a drafter proposes more; the next step computes them with the last token, emits
those that are right and one more, and what was computed of the others does not count.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import Step
from .request_history import VllmRequestHistory

Config = Mapping[str, Any]


def drafts(config: Config) -> int:
    """Tokens that the drafter proposes after each token."""
    return int(config.get("num_speculative_tokens", 0))


def lookahead(config: Config) -> int:
    """Tokens beyond those computed that a request holds blocks for."""
    return int(config.get("num_lookahead_tokens", 0))


def most_ahead(config: Config) -> int:
    """Tokens beyond those known for which a request may need blocks: its drafts, those of the
    decision before where it is decided ahead, and the lookahead."""
    return (2 if decides_ahead(config) else 1) * drafts(config) + lookahead(config)


def decides_ahead(config: Config) -> bool:
    """A request is scheduled again while its last token is on its way. Drafts are then proposed
    with every decision, and not after every token."""
    return bool(config.get("async_scheduling", False))


def drafts_to_compute(config: Config, one: VllmRequestHistory) -> int:
    """Drafts of a request that positions are left for; less than none where those on their way
    would be beyond the last position."""
    if not one.drafted:
        return 0
    return max(
        min(one.drafted, int(config["max_model_len"]) - 1 - one.num_tokens), -one.drafts_in_flight
    )


def drafts_computed(one: VllmRequestHistory, tokens: int) -> int:
    """How many of the `tokens` that a running request computes are drafts."""
    return max(one.computed + tokens - one.num_tokens, 0)


def right(one: VllmRequestHistory, tokens: int) -> int:
    """How many of the drafts among these tokens are what the model says."""
    return right_of(one, min(drafts_computed(one, tokens), one.drafted))


def right_of(one: VllmRequestHistory, drafts: int) -> int:
    """How many of so many drafts are what the model says, when it verifies next."""
    if not drafts or not one.accepted:
        return 0
    return min(drafts, one.accepted[one.verified % len(one.accepted)])


def drafts_right(config: Config, one: VllmRequestHistory, step: Step, tokens: int) -> int:
    """How many drafts of a request are right that computes so many tokens in the step: all that it
    emits but the last one; as the scenario says, where the target does not show it. All that are
    decided ahead: only later it is known."""
    if drafts(config) and decides_ahead(config):
        return drafts_computed(one, tokens)
    if not one.drafted:
        return 0
    if step.emitted is None:
        return right(one, tokens)
    return max(min(step.emitted.get(one.id, 0) - 1, drafts_computed(one, tokens)), 0)


def slots(config: Config, covered: int) -> int:
    """Tokens that a request holds blocks for when its first `covered` are computed."""
    ahead = lookahead(config)
    return min(covered + ahead, int(config["max_model_len"])) if ahead else covered


def compute(config: Config, one: VllmRequestHistory, first: bool) -> None:
    """Book that tokens were computed, which `computed` has already; with its `first` ones a request
    need not get the lookahead."""
    covered = one.computed if first else slots(config, one.computed)
    one.slots = max(one.slots, covered)


def verify(config: Config, one: VllmRequestHistory, verified: int) -> None:
    """Book that so many drafts were verified, after what it emitted is booked: all that is known
    but its last token is computed, and the drafter proposes more, unless it has before."""
    one.verified += verified > 0
    one.computed = min(one.computed, one.num_tokens - 1)
    if not decides_ahead(config):
        one.drafted = drafts(config)
