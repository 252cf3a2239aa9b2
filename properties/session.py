"""A target under a monitor: every operation is passed on, every step judged."""

import traceback
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.errors import InputError
from ..model.faults import TargetCrashed, TargetDied, TargetFault, TargetHung, TargetTooLarge
from ..model.observation import Step
from ..model.replies import Started, read_ok, read_started, read_step
from ..model.scenario import Request
from ..model.systems import make_model
from ..model.target import ModelTarget, Reply, Target, ask_ahead
from ..spec.catalogue import Rule
from . import lockstep
from .difference import Differs
from .monitor import Monitor
from .predicate import Broken
from .rules import LOCKSTEP, PREDICATES, keeps_step, observable

CONTEXT_STEPS = 6
ENDS = frozenset({"emitted", "finished"})  # what tells how many steps are sure to come
CRASHES_AND_HANGS = (TargetCrashed, TargetDied, TargetHung, TargetTooLarge)
FINDINGS = (*CRASHES_AND_HANGS, Differs)


class Session:
    """One run of a target in one configuration.

    Attributes:
        started: what the target says of itself.
        checked: the rules that can be checked on it, in catalogue order.
        recent: the last few steps with their numbers, for a reader of a failure.
        rejected: requests that the target refused at the door, with its words.
        cannot_abort: the target has answered an abort with "unsupported".
        expected: what the model did in the last step, where it runs beside the target.
        details: traceback or stderr of a crash.
        begins_early: the target can begin with steps that are foreseen.
        asked: steps that the target makes in any case, whether the run gets there or not. While
            there are some nothing else can be asked of it.
    """

    def __init__(
        self,
        target: Target,
        system: str,
        revision: str,
        config: Mapping[str, Any],
        rules: Sequence[Rule],
        at_stake: Counter[str] | None = None,
    ) -> None:
        """Start the target.

        Raises:
            ConfigRefused: it cannot honour the configuration.
            TargetFault: it does not start, or its reply is no reply.
        """
        self._target = target
        self.started: Started = read_started(ask("start", target.start, system, revision, config))
        seen = observable(rules, revision, self.started.observes, config)
        held = keeps_step(system, revision, self.started.name)
        self.checked = [rule for rule in seen if held or rule.id != LOCKSTEP]
        self.monitor = Monitor(self.checked, PREDICATES[system], config, at_stake, revision, system)
        self.recent: deque[tuple[int, Step]] = deque(maxlen=CONTEXT_STEPS)
        self.rejected: dict[str, str] = {}
        self.cannot_abort = False
        self._model_reply: Reply | None = None
        self.details = ""
        self.asked = 0
        self.begins_early = hasattr(target, "ask_ahead") and self.started.observes >= ENDS
        self._lockstep = self._make_lockstep(system, revision, config)

    def add(self, request: Request) -> list[Broken]:
        """A request arrives; one that is refused at the door is no part of the run."""
        assert not self.asked, f"{request.id} arrives amid steps that were foreseen"
        try:
            refusal = read_ok("add", ask("add", self._target.add, request.for_target()))
        except FINDINGS as fault:
            return self._fault(fault)
        if refusal is not None:
            self.rejected[request.id] = refusal
            return []
        self.monitor.accept(request)
        if self._lockstep is not None:
            reply = self._lockstep.add(request.for_target())
            if not reply["ok"]:
                message = f"{request.id} is accepted, the model refuses it: {reply['message']}"
                return [Broken(LOCKSTEP, self.monitor.ledger.step, message)]
        return []

    def abort(self, request_id: str, inside: bool) -> list[Broken]:
        """A client gives a request up; a target that cannot abort goes on without."""
        assert not self.asked, f"{request_id} gives up amid steps that were foreseen"
        try:
            args = (request_id, True) if inside else (request_id,)
            unsupported = read_ok("abort", ask("abort", self._target.abort, *args))
        except FINDINGS as fault:
            return self._fault(fault)
        self.cannot_abort = unsupported is not None
        if unsupported is None:
            self.monitor.abort(request_id, inside)
            if self._lockstep is not None:
                self._lockstep.abort(request_id, inside)
        return []

    def foresee(self, steps: int) -> None:
        """Nothing but so many steps follows, or else the end of the run: a target may begin with
        those that are sure to come."""
        if self.begins_early and not self.asked:
            self.asked = ask_ahead(self._target, min(steps, self.monitor.ledger.least_steps))

    def step(self) -> list[Broken]:
        """One step, judged.

        Raises:
            TargetBroken: the reply is not a step observation.
        """
        self._model_reply = None
        self.asked = max(0, self.asked - 1)
        try:
            reply = ask("step", self._target.step)
            step = read_step(reply, self.started.observes)
        except FINDINGS as fault:
            return self._fault(fault)
        differences: list[str] | None = None
        if self._lockstep is not None:
            self._model_reply = self._lockstep.step()
            differences = self._differences(step, reply["step"])
        self.recent.append((self.monitor.ledger.step, step))
        return self.monitor.observe(step, differences)

    @property
    def expected(self) -> Step | None:
        """What the release's model did in the last step, as one sees it who is shown what the
        target shows; None where no model is beside it."""
        if self._model_reply is None:
            return None
        whole = read_step(self._model_reply, frozenset())
        return lockstep.shown(whole, self.started.observes)

    def _differences(self, step: Step, seen: Mapping[str, Any]) -> list[str]:
        """How the target's step differs from the model's; nearly always they are equal at sight,
        which saves the translation."""
        assert self._model_reply is not None
        if lockstep.equal_at_sight(seen, self._model_reply["step"]):
            return []
        expected = self.expected
        assert expected is not None
        return lockstep.differences(step, expected)

    @property
    def unfinished(self) -> bool:
        """An accepted request is unfinished."""
        return bool(self.monitor.ledger.live)

    def _fault(self, fault: TargetFault) -> list[Broken]:
        if isinstance(fault, Differs):
            self.details = fault.difference.details
            return [Broken(fault.difference.shape, self.monitor.ledger.step, str(fault))]
        if isinstance(fault, TargetHung):
            return self.monitor.hung(str(fault))
        if isinstance(fault, TargetCrashed):
            self.details = fault.details
        elif isinstance(fault, TargetDied):
            self.details = fault.stderr_tail
        return self.monitor.crashed(str(fault))

    def _make_lockstep(
        self, system: str, revision: str, config: Mapping[str, Any]
    ) -> ModelTarget | None:
        """The model beside the target, where the rule asks for it and the target is not it."""
        if LOCKSTEP not in {rule.id for rule in self.checked}:
            return None
        if type(self._target) is ModelTarget:
            return None
        try:
            make_model(system, revision, config)
        except InputError:
            return None
        model = ModelTarget()
        model.start(system, revision, config)
        return model


def ask(op: str, method: Any, *args: Any) -> Reply:
    """Call a target; what a target in this process raises is a crash of its scheduler.

    Raises:
        TargetFault: the target's own, or a crash.
    """
    try:
        reply: Reply = method(*args)
    except TargetFault:
        raise
    except Exception as error:
        raise TargetCrashed(
            op, f"{type(error).__name__}: {error}", traceback.format_exc()
        ) from None
    return reply
