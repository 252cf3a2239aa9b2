"""The features of Spyre's runs that the kernel does not have: paused requests."""

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


def _runs_cached_chunk(history: RunHistory[Any], name: str) -> bool:
    """Return whether a step that schedules the request may run a chunk that is entirely cached. The
    scheduling page allows this, at most once for each chunk of the prompt; releases skip such
    chunks.
    """
    request = history.live.get(name)
    if request is None or history.revision != "documented" or not history.config["prefix_caching"]:
        return False
    chunks = -(-request.prompt // int(history.config["chunk_size"]))
    return not request.prefilled and request.prefill_steps < chunks


class SpyreFeatures(Features):
    """Adds pauses. A paused request keeps its computed tokens, and no request is ever preempted.
    The prefix cache also finds generated tokens (SPY-R60)."""

    request_history = SpyreRequestHistory
    never_preempts = True

    def caches_output(self, revision: str) -> bool:
        return True

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        """Return True: the prefix cache finds only tokens that blocks still hold."""
        return True

    def may_compute_nothing(self, history: RunHistory[Any], step: Step) -> bool:
        """Return whether the step may run only a cached chunk."""
        return any(_runs_cached_chunk(history, name) for name in step.scheduled)

    def end(self, history: RunHistory[Any], step: Step) -> bool:
        before = history.paused
        if history.revision in REVISIONS_THAT_PAUSE:
            history.paused = frozenset(step.paused or ())
            for request in cast(SpyreRun, history).live.values():
                paused = request.id in history.paused
                request.paused_steps = request.paused_steps + 1 if paused else 0
        return history.paused != before


FEATURES = SpyreFeatures()
