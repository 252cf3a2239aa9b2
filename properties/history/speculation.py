"""What speculative decoding does to what a client knows of a request.

After each token a drafter proposes more; the next step computes them with the last token, emits
those that are right and one more, and what was computed of the others does not count.
"""

from collections.abc import Mapping
from typing import Any

from ...model.observation import Step
from .request_history import RequestHistory

Config = Mapping[str, Any]


def drafts(config: Config) -> int:
    """Tokens that the drafter proposes after each token."""
    return int(config.get("num_speculative_tokens", 0))


def lookahead(config: Config) -> int:
    """Tokens beyond those computed that a request holds blocks for."""
    return int(config.get("num_lookahead_tokens", 0))


def drafts_to_compute(config: Config, one: RequestHistory) -> int:
    """Drafts of a request that positions are left for."""
    if not one.drafted:
        return 0
    return max(min(one.drafted, int(config["max_model_len"]) - 1 - one.num_tokens), 0)


def drafts_computed(one: RequestHistory, tokens: int) -> int:
    """How many of the `tokens` that a running request computes are drafts."""
    return max(one.computed + tokens - one.num_tokens, 0)


def right(one: RequestHistory, tokens: int) -> int:
    """How many of the drafts among these tokens are what the model says."""
    computed = min(drafts_computed(one, tokens), one.drafted)
    if not computed or not one.accepted:
        return 0
    return min(computed, one.accepted[one.verified % len(one.accepted)])


def drafts_right(one: RequestHistory, step: Step, tokens: int) -> int:
    """How many drafts of a request are right that computes so many tokens in the step: all that it
    emits but the last one; as the scenario says, where the target does not show it."""
    if not one.drafted:
        return 0
    if step.emitted is None:
        return right(one, tokens)
    return max(min(step.emitted.get(one.id, 0) - 1, drafts_computed(one, tokens)), 0)


def slots(config: Config, covered: int) -> int:
    """Tokens that a request holds blocks for when its first `covered` are computed."""
    ahead = lookahead(config)
    return min(covered + ahead, int(config["max_model_len"])) if ahead else covered


def compute(config: Config, one: RequestHistory, first: bool) -> None:
    """Book that tokens were computed, which `computed` has already; with its `first` ones a request
    need not get the lookahead."""
    covered = one.computed if first else slots(config, one.computed)
    one.slots = max(one.slots, covered)


def verify(config: Config, one: RequestHistory, emitted: int) -> None:
    """Book that it emits tokens, which `emitted` does not have yet: all but the last of them are
    computed, and the drafter proposes more."""
    one.verified += one.drafted > 0 and drafts_computed(one, 0) > 0
    one.computed = min(one.computed, one.num_tokens + emitted - 1)
    one.drafted = drafts(config)
