"""Follow a run to find the cause of its failure.

The picture depends on the evidence and not on the rule. If a step crosses a limit, the picture is a
curve, or the sum of the step's requests; for a hit or padding, it is bars of tokens; for a block
that is lost or read by mistake, it is the pool, or the tables of a request. In all other cases, it
shows the requests, with what each of them needed and what was free. The numbers in the rule's
message decide which evidence is shown, and appear in the picture.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ...model.observation import Step
from ...model.scenario import Scenario
from ..checking.session import Session
from ..history.prefix_hits import caches
from ..history.run_history import RunHistory
from ..history.shadow_cache import ShadowCache
from ..rules.predicate import Broken
from .cause import Cause
from .failure import Failure, explain
from .pool import pool_cause, table_cause, tables
from .tokens import hit_cause, limit_cause, padding_cause
from .turns import last_events, turns_cause

HOLDERS = 3  # how many of the last holders of each block are kept
MOST_SKIPPED = 1_000_000  # consecutive steps; a run that skips more is not explained
IDLE = Step(kind="idle", scheduled={})
DECISION = ("kind", "scheduled", "computed", "preempted", "tkv", "running", "free_blocks")


class Evidence:
    """Follows one run, and explains at the end what caused its failure.

    Pass `begun` and `watch` to `replay`. Only the decisions of earlier steps are kept.
    """

    def __init__(self) -> None:
        self.history: RunHistory[Any] | None = None
        self.version = ""
        self._steps: list[Step] = []
        self._last: Step | None = None
        self._before: Step | None = None
        self._holders: dict[int, dict[str, int]] = {}  # by block: its holders, each with a step

    def begun(self, session: Session) -> None:
        self.follow(session.monitor.history, session.started.version)

    def follow(self, history: RunHistory[Any], version: str) -> None:
        """Begin to follow a run. The content of its blocks is known only if no step has run yet."""
        self.history, self.version = history, version
        config = history.config
        if history.shadow is None and not history.step and "block_size" in config:
            pool = config.get("num_blocks")
            history.shadow = ShadowCache(config["block_size"], caches(config), pool=pool)

    def watch(self, number: int, step: Step) -> None:
        missing = number - len(self._steps)  # a replay skips steps in which a model waits
        if missing > MOST_SKIPPED:
            self.history = None
            return
        self._steps += [IDLE] * missing
        decision = {name: getattr(step, name) for name in DECISION}
        self._steps.append(Step(**decision))
        self._note_holders(number, step)
        self._before, self._last = self._last, step

    def _note_holders(self, number: int, step: Step) -> None:
        before, after = tables(self._last), tables(step)
        for name in after.keys() | before.keys():
            old, new = before.get(name, ()), after.get(name, ())
            if old == new:
                continue
            for block in {*old} - {*new}:
                self._holders[block][name] = number - 1
            for block in {*new} - {*old}:
                holders = self._holders.setdefault(block, {})
                holders.pop(name, None)
                holders[name] = number
                if len(holders) > HOLDERS:
                    del holders[next(iter(holders))]

    def cause(self, scenario: Scenario, broken: Sequence[Broken]) -> Cause | None:
        """Return the cause of the first broken rule, or None if the run never began."""
        if self.history is None or not broken:
            return None
        shown = self._before, self._last
        run = (self.history, self.version, self._steps, shown, self._holders)
        return _cause(Failure(*run, scenario, broken))


def _cause(failure: Failure) -> Cause:
    first, scenario = failure.first, failure.scenario
    own = explain(first.rule, scenario, first.step, failure.version)
    seen = (hit_cause, table_cause, pool_cause, limit_cause)
    pieces = seen if failure.ended_by_it else ()
    causes = [cause for piece in pieces if (cause := piece(failure)) is not None]
    causes = causes or [padding_cause(failure) or turns_cause(failure)]
    drawn = {name: value for cause in reversed(causes) for name, value in _drawn(cause)}
    why = own or [*failure.facts(), *(line for cause in causes for line in cause.why)]
    why = why or last_events(failure)
    return Cause(causes[0].headline or first.message, tuple(why), **drawn)


def _drawn(cause: Cause) -> Iterator[tuple[str, Any]]:
    for name in ("bars", "cells", "curve", "rows", "first", "columns"):
        if getattr(cause, name):
            yield name, getattr(cause, name)
