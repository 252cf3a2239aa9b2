"""Speculative decoding: how drafts change what a client knows about a request.

After each token, a drafter proposes more. The next step computes these drafts with the last token,
and emits the correct ones and one more token. Wrong drafts do not count as computed.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import Step
from .request_history import VllmRequestHistory

Config = Mapping[str, Any]


def drafts(config: Config) -> int:
    return int(config.get("num_speculative_tokens", 0))


def drafts_after(config: Config, requests: int) -> int:
    """Return how many drafts are proposed after a step with this many requests."""
    most = drafts(config)
    for first, _, fewer in config.get("num_speculative_tokens_per_batch_size") or ():
        if first <= requests:
            most = min(fewer, drafts(config))
    return most


def lookahead(config: Config) -> int:
    """Return the number of tokens beyond the computed ones for which a request holds blocks."""
    return int(config.get("num_lookahead_tokens", 0))


def read_ahead(config: Config) -> int:
    """Return how many tokens beyond those of a prefill step the drafter reads."""
    return int(lookahead(config) > 0)


def most_ahead(config: Config) -> int:
    """Return the number of tokens beyond the known ones for which a request may need blocks: its
    drafts, the lookahead and, if decisions are made ahead, the drafts of earlier decisions in
    flight.
    """
    decisions = depth(config) if decides_ahead(config) else 1
    return decisions * drafts(config) + lookahead(config)


def decides_ahead(config: Config) -> bool:
    """Return whether a request is scheduled again while its last token is in flight. Drafts are
    then proposed with every decision, not after every token."""
    return bool(config.get("async_scheduling", False))


def depth(config: Config) -> int:
    """Return how many decisions can be in flight at once."""
    if decides_ahead(config):
        return stages(config) + 1 if has_v2_runner(config) else max(stages(config), 2)
    return stages(config)


def has_v2_runner(config: Config) -> bool:
    return bool(config.get("use_v2_model_runner", False))


def stages(config: Config) -> int:
    return int(config.get("pipeline_parallel_size", 1))


def drafts_to_compute(config: Config, request: VllmRequestHistory) -> int:
    """Return how many of a request's drafts still have a position. The number is negative if the
    drafts in flight would exceed the last position."""
    if not request.drafted:
        return 0
    return max(
        min(request.drafted, int(config["max_model_len"]) - 1 - request.num_tokens),
        -request.drafts_in_flight,
    )


def drafts_computed(request: VllmRequestHistory, tokens: int) -> int:
    """Return how many of the `tokens` that a running request computes are drafts."""
    return max(request.computed + tokens - request.num_tokens, 0)


def correct_drafts(request: VllmRequestHistory, tokens: int) -> int:
    """Return how many of these tokens are correct drafts."""
    return correct_of(request, min(drafts_computed(request, tokens), request.drafted))


def loses_drafts(config: Config, request: VllmRequestHistory) -> bool:
    """Return whether the scheduler must decide without the request's drafts. It must check drafts
    against a grammar first, and receives them only when the token in flight before them arrives.
    """
    return request.arrived_blocked and decides_ahead(config) and not request.tokens_in_flight


def fitting(request: VllmRequestHistory, known: int, drafts: int) -> int:
    """Return how many of the drafts that follow the first `known` output tokens fit the grammar of
    the request, if it has one."""
    fit = drafts
    if request.grammar_drafts:
        fit = min(drafts, request.grammar_drafts[known % len(request.grammar_drafts)])
    if request.grammar_ends is not None:
        fit = max(min(fit, request.grammar_ends - known), 0)
    return max(fit, min(drafts, request.grammar_begins - known))


def correct_of(request: VllmRequestHistory, drafts: int) -> int:
    """Return how many of the first `drafts` drafts are correct in the request's next
    verification. A draft that does not fit the request's grammar is wrong."""
    drafts = fitting(request, request.emitted, drafts)
    if not drafts or not request.accepted:
        return 0
    return min(drafts, request.accepted[request.verified % len(request.accepted)])


def correct_in_step(config: Config, request: VllmRequestHistory, step: Step, tokens: int) -> int:
    """Return how many of the tokens that a request computes in the step are correct drafts.

    All emitted tokens except the last one are correct drafts; if the target does not show emitted
    tokens, the scenario gives the number. With several decisions in flight, all drafts count, since
    only a later step verifies them.
    """
    if drafts(config) and (decides_ahead(config) or stages(config) > 1):
        return drafts_computed(request, tokens)
    if not request.drafted:
        return 0
    if step.emitted is None:
        return correct_drafts(request, tokens)
    return max(min(step.emitted.get(request.id, 0) - 1, drafts_computed(request, tokens)), 0)


def slots(config: Config, covered: int) -> int:
    """Return the number of tokens for which a request holds blocks when its first `covered` tokens
    are computed."""
    ahead = lookahead(config)
    return min(covered + ahead, int(config["max_model_len"])) if ahead else covered


def compute(config: Config, request: VllmRequestHistory, first: bool) -> None:
    """Record that tokens were computed. `request.computed` already includes them.

    If `first` is set, these are the first tokens of the request, and it may have no blocks for the
    lookahead yet.
    """
    most = slots(config, request.computed)
    request.slots = max(request.slots, request.computed if first else most)
    request.most_slots = max(request.most_slots, most)


def verify(config: Config, request: VllmRequestHistory, proposed: int, requests: int) -> None:
    """Record that the `proposed` drafts of a decision were verified. Call this after the emitted
    tokens are recorded.

    All known tokens but the last then count as computed. The drafter proposes more drafts, unless
    it already has or the request was preempted. `requests` is the number of requests in the
    decision.
    """
    request.verified += proposed > 0
    computed = min(request.computed, request.num_tokens - 1)
    if request.begun:
        wrong = request.computed - computed
        request.begun = tuple(before - wrong for before in request.begun)
    request.computed = computed
    if not decides_ahead(config) and request.started:
        request.drafted = fitting(request, request.emitted, drafts_after(config, requests))
