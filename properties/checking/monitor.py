"""Judge one run: evaluate every rule after every step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...model.observation import Step
from ...model.scenario import Request
from ...spec.catalogue import Rule
from ..history.bounds import bounds_of
from ..history.kept_prefixes import KeptPrefixes
from ..history.prefix_hits import caches
from ..history.run_history import RunHistory
from ..history.shadow_cache import ShadowCache
from ..rules.predicate import AdapterMessage, Broken, Predicate
from ..rules.questions import Questions
from ..rules.registry import AT_THE_DOOR, LOCKSTEP, NEVER_CRASHES, NEVER_HANGS, OWN_TOKENS


class Monitor:
    """Follows a run and returns the rules that each step breaks, in catalogue order.

    `exercised` counts for each rule the steps in which its witness occurred.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        predicates: Mapping[str, Predicate],
        config: Mapping[str, Any],
        *,
        revision: str,
        system: str,
        exercised: Counter[str] | None = None,
    ) -> None:
        self.history = RunHistory(config, revision, system)
        self.exercised = Counter() if exercised is None else exercised
        self._rules = [rule.id for rule in rules]
        if OWN_TOKENS in self._rules:
            self.history.shadow = ShadowCache(
                config["block_size"], caches(config), pool=config.get("num_blocks")
            )
        judged = [
            (rule, predicate)
            for rule in self._rules
            if (predicate := predicates.get(rule)) is not None and predicate.concerns(config)
        ]
        if caches(config) and any(predicate.reads_kept for _, predicate in judged):
            self.history.kept = KeptPrefixes(config["block_size"])
        self._questions = Questions(judged)

    def accept(self, request: Request, *, open_ended: bool = False) -> None:
        if self._must_be_accepted(request):
            self.exercised[AT_THE_DOOR] += 1
        self.history.accept(request, open_ended=open_ended)

    def refused(self, request: Request, words: str) -> list[Broken]:
        if not self._must_be_accepted(request):
            return []
        message = (
            f"{request.id} is refused ({words!r:.80}), although its {request.prompt_len} + "
            f"{request.max_tokens} tokens can run and every other request has ended"
        )
        return self._fault(AT_THE_DOOR, message)

    def _must_be_accepted(self, request: Request) -> bool:
        can_run = bounds_of(self.history.system).can_run
        # In a scenario, the requests of a step arrive before its aborts.
        unfinished = self.history.live or self.history.aborts_to_report
        checked = AT_THE_DOOR in self._rules and not unfinished
        config = self.history.config
        if not checked or self.history.features.can_never_run(config, request):
            return False
        return can_run(config, *request.whole)

    def abort(self, request_id: str, inside: bool) -> None:
        self.history.abort(request_id, inside)

    def control(self, kind: str, done: bool) -> None:
        self.history.control(kind, done)

    def observe(self, step: Step, differences: Sequence[str] | None = None) -> list[Broken]:
        """Return the rules that this step breaks. `differences` are the differences from the
        model's step; there are none if no model runs alongside the target."""
        history, number = self.history, self.history.step
        history.give_up(step)
        broken, occurred = [], []
        for rule, is_broken, is_exercised in self._questions.of(history, step):
            message = is_broken(history, step)
            if message is not None:
                # Reports cannot encode a subclass of str, so keep the text only.
                text, by_adapter = str.__str__(message), isinstance(message, AdapterMessage)
                broken.append(Broken(rule, number, text, by_adapter=by_adapter))
            if message is not None or is_exercised(history, step):
                occurred.append(rule)
        for rule in self._questions.answered(occurred, bool(broken)):
            self.exercised[rule] += 1
        if differences is not None and LOCKSTEP in self._rules:
            self.exercised[LOCKSTEP] += bool(step.scheduled)
            if differences:
                broken.append(Broken(LOCKSTEP, number, "; ".join(differences)))
        for rule in (NEVER_CRASHES, NEVER_HANGS):
            self.exercised[rule] += bool(history.live)
        history.observe(step)
        return broken

    def crashed(self, message: str, place: str = "") -> list[Broken]:
        """Return the rules that the scheduler broke by raising an exception instead of stepping."""
        return self._fault(NEVER_CRASHES, message, place)

    def hung(self, message: str, place: str = "") -> list[Broken]:
        """Return the rules that the scheduler broke by not answering in time."""
        return self._fault(NEVER_HANGS, message, place)

    def _fault(self, rule: str, message: str, place: str = "") -> list[Broken]:
        self.exercised[rule] += 1
        return [Broken(rule, self.history.step, message, place)]
