"""What Spyre's runs add to the kernel: paused requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from ...model.observation import Step
from ..history.features import Features
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory

REVISIONS_THAT_PAUSE = frozenset({"2.5.2"})


@dataclass(slots=True)
class SpyreRequestHistory(RequestHistory):
    """One accepted request; `paused_steps` counts the steps of its current pause."""

    paused_steps: int = 0


SpyreRun: TypeAlias = RunHistory[SpyreRequestHistory]


def _runs_cached_chunks(history: RunHistory[Any]) -> bool:
    """Return whether a scheduler may run chunks without any uncached token; releases skip them."""
    return history.revision == "documented" and bool(history.config["prefix_caching"])


class SpyreFeatures(Features):
    """Pauses. A paused request keeps its computed tokens, and no request is ever preempted."""

    request_history = SpyreRequestHistory
    never_preempts = True

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        """Return True: the prefix cache finds only tokens that blocks still hold."""
        return True

    def may_compute_nothing(self, history: RunHistory[Any], step: Step) -> bool:
        """Return whether a request starts with a cached chunk that is run, as the page allows."""
        return _runs_cached_chunks(history) and any(
            name in history.live and not history.live[name].started for name in step.scheduled
        )

    def idle_steps(self, history: RunHistory[Any]) -> int:
        """Count the chunks of a prompt that is cached, too."""
        chunks = 0
        if _runs_cached_chunks(history):
            chunks = history.config["max_model_len"] // history.config["chunk_size"]
        return super().idle_steps(history) + chunks

    def end(self, history: RunHistory[Any], step: Step) -> None:
        if history.revision in REVISIONS_THAT_PAUSE:
            history.paused = frozenset(step.paused or ())
            for request in cast(SpyreRun, history).live.values():
                paused = request.id in history.paused
                request.paused_steps = request.paused_steps + 1 if paused else 0


FEATURES = SpyreFeatures()
