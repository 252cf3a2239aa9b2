"""Speculative decoding around vLLM's scheduler.

A drafter proposes tokens, and the model accepts as many of them as the scenario prescribes.

Sources: the running clamp and allocate_slots in the chapter on chunked prefill; release 0.28.0.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol_checks import Output
from .grammars import Grammars
from .in_flight import Flight
from .offline import MODEL

PER_BATCH_SIZE = "num_speculative_tokens_per_batch_size"
# Configuration keys that are absent without speculative decoding.
KEYS = ("num_speculative_tokens", "num_lookahead_tokens", PER_BATCH_SIZE)
NO_DRAFT = -1  # some releases fill up missing drafts with this value


Ranges = tuple[tuple[int, ...], ...]


def drafter(config: Mapping[str, Any]) -> tuple[str, int, Ranges] | None:
    """Return vLLM's name for the drafter, the number of drafts, and the ranges of batch sizes, each
    with its own number of drafts. The drafter called n-gram has no KV cache."""
    drafts = config.get("num_speculative_tokens", 0)
    if not drafts:
        return None
    ranges = tuple(map(tuple, config.get(PER_BATCH_SIZE) or ()))
    return ("eagle" if config.get("num_lookahead_tokens", 0) else "ngram"), drafts, ranges


def speculative_config(method: str, drafts: int, ranges: Ranges) -> dict[str, Any]:
    """Return vLLM's option for a drafter. No draft is ever computed, so no weights are needed."""
    own: dict[str, Any] = {"model": MODEL} if method == "eagle" else {"prompt_lookup_max": 2}
    dynamic = {PER_BATCH_SIZE: [*map(list, ranges)]} if ranges else {}
    return {"method": method, "num_speculative_tokens": drafts, **own, **dynamic}


def is_ranges(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, list) and len(entry) == 3 and {*map(type, entry)} == {int}
        for entry in value
    )


def count_drafts(scheduled: Sequence[int], ahead: bool) -> int:
    """Return how many of the scheduled drafts the worker knows. If the scheduler decides `ahead`,
    the worker knows all drafts, although the scheduler does not."""
    return len(scheduled) if ahead else sum(token != NO_DRAFT for token in scheduled)


class Drafts:
    """The drafts of an engine's requests. After each token, `count` drafts are proposed."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        ahead = config.get("async_scheduling")
        self.count = 0 if ahead else config.get("num_speculative_tokens", 0)
        self._is_dynamic = bool(config.get(PER_BATCH_SIZE))
        self._verified: dict[str, int] = {}

    def count_right(self, output: Output, drafts: int) -> int:
        if not drafts or not output.accepted:
            return 0
        time = self._verified.get(output.id, 0)
        self._verified[output.id] = time + 1
        return min(drafts, output.accepted[time % len(output.accepted)])

    def take_back(self, name: str) -> None:
        """Undo the count of one verification whose result was dropped."""
        if name in self._verified:
            self._verified[name] -= 1

    def forget(self, name: str) -> None:
        self._verified.pop(name, None)

    def propose(self, scheduler: Any, flight: Flight, grammars: Grammars) -> None:
        """Propose drafts for every request that gets a token from a decision.

        The engine core asks the workers for the drafts of the newest decision
        (EngineCore.post_step). Earlier decisions need not have completed by then, because the
        workers carry out decisions in order.
        """
        if not self.count:
            return
        output = flight.output
        sampled = {
            name: len(tokens)
            for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True)
            if tokens
        }
        count = flight.decision.num_spec_tokens_to_schedule if self._is_dynamic else self.count
        drafts = [
            grammars.drafts(name, flight.first[name] + tokens, count)
            for name, tokens in sampled.items()
        ]
        proposed = importlib.import_module("vllm.v1.outputs").DraftTokenIds([*sampled], drafts)
        scheduler.update_draft_token_ids(proposed)
