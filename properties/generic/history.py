"""The history of any scheduler's run. It supports vLLM's optional features, because their keys have
the same meaning here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...model.observation import Step
from ..history.prefix_hits import caches
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory
from ..vllm.history.features import VllmFeatures
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import of


@dataclass(slots=True)
class GenericRequestHistory(VllmRequestHistory):
    """One accepted request.

    Attributes:
        preempted_after: how many requests had arrived when it was last preempted.
    """

    preempted_after: int = 0


def preempted_after(request: RequestHistory) -> int:
    return cast(GenericRequestHistory, request).preempted_after


class GenericFeatures(VllmFeatures):
    """The features of any scheduler. A client does not know where a scheduler keeps cached
    tokens."""

    request_history = GenericRequestHistory

    def caches_output(self, revision: str) -> bool:
        return False

    def group_pools(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple([group["num_blocks"] for group in config.get("kv_groups", ())[1:]])

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return not caches(config)

    def begin(self, history: RunHistory[Any], step: Step) -> None:
        super().begin(history, step)
        for name in step.preempted or ():
            if name in history.live:
                history.live[name].preempted_after = history.arrived

    def hit(self, history: RunHistory[Any], step: Step, account: RequestHistory) -> int | None:
        """Return how many tokens a request finds in the cache or has loaded, or None if that is
        unknown. The scheduler decides how many of the loaded tokens a request uses."""
        shown, tokens = (step.computed or {}).get(account.id), step.scheduled.get(account.id)
        if account.started or not of(account).tokens_loading or tokens is None:
            return super().hit(history, step, account)
        if shown is None and (step.finished or {}).get(account.id) in ("length", "eos"):
            shown = account.num_tokens  # it ends with its first token, so all others are computed
        if shown is None:
            return super().hit(history, step, account)
        return max(shown - tokens, 0)


FEATURES = GenericFeatures()
