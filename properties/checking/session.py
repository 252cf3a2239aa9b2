"""A target under a monitor: every operation is passed on to the target, and every step is
judged."""

import json
import traceback
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.faults import (
    AdapterFault,
    TargetBroken,
    TargetCrashed,
    TargetDied,
    TargetFault,
    TargetHung,
    TargetTooLarge,
)
from ...model.observation import Step, rename_requests
from ...model.own_code import describe_exception
from ...model.replies import Started, read_control, read_ok, read_started, read_step
from ...model.scenario import Request
from ...model.systems import full_config
from ...model.target import ModelTarget, Reply, Target
from ...spec.catalogue import Rule
from ..rules.predicate import Broken
from ..rules.registry import COMPLETION, LOCKSTEP, keeps_step, observable, predicates_of
from . import lockstep
from .failure_signature import place_of
from .monitor import Monitor

CONTEXT_STEPS = 6
STUCK = 200  # steps in a row without progress, after which no more are expected
CRASHES_AND_HANGS = (TargetCrashed, TargetDied, TargetHung, TargetTooLarge)


# Exceptions outside `Exception` with which a target may end its process, task or test. They count
# as crashes. All others outside `Exception`, such as KeyboardInterrupt or the failure that pytest
# raises at a timeout, do not come from the target.
LEAVE = ("SystemExit", "GeneratorExit", "CancelledError", "Skipped", "StopTest")


REFUSING = "answer with the error 'config'"


class Excerpt(NamedTuple):
    """The end of a run, for the report of its failure.

    Attributes:
        version: the version that the target reports.
        recent: the last few steps with their numbers.
        details: traceback or stderr of a crash.
    """

    version: str
    recent: tuple[tuple[int, Step], ...]
    details: str


class Session:
    """One run of a target in one configuration.

    Attributes:
        started: the target's reply to `start`.
        checked: the rules that can be checked on this target, in catalogue order.
        recent: the last few steps with their numbers, for the report of a failure.
        rejected: requests that the target refused, with its messages.
        cannot_abort: whether the target has answered the last abort with "unsupported".
        not_aborted: the requests whose abort the target has answered with "unsupported".
        left_out: the control events that were not sent because the target does not declare them.
        expected: the model's last step, if a model runs alongside the target.
        details: traceback or stderr of a crash.
        broken_at_start: the rule that a crash or a hang at `start` breaks. The run is then over.
    """

    def __init__(
        self,
        target: Target,
        system: str,
        revision: str,
        config: Mapping[str, Any],
        rules: Sequence[Rule],
        exercised: Counter[str] | None = None,
    ) -> None:
        """Start the target.

        A crash or a hang breaks a rule, unless the target does not start in the default
        configuration either.

        Raises:
            ConfigRefused: the target cannot run with the configuration.
            TargetFault: the target starts in no configuration, or its reply is invalid.
        """
        self._target = target
        fault: TargetFault | None = None
        try:
            self.started: Started = read_started(
                call_target("start", target.start, system, revision, config)
            )
        except CRASHES_AND_HANGS as crash:
            fault = crash
            self.started = _started_by_default(target, system, revision, config, crash)
        seen = observable(rules, revision, self.started.shows, config, system)
        held = keeps_step(system, revision, self.started.name, self.started.version)
        self.checked = [rule for rule in seen if held or rule.beside or rule.id != LOCKSTEP]
        self.monitor = Monitor(
            self.checked,
            predicates_of(system),
            config,
            revision=revision,
            system=system,
            exercised=exercised,
        )
        self.monitor.history.defaults = self.started.defaults
        self.recent: deque[tuple[int, Step]] = deque(maxlen=CONTEXT_STEPS)
        self.rejected: dict[str, str] = {}
        self.cannot_abort = False
        self.not_aborted: set[str] = set()
        self.left_out: Counter[str] = Counter()
        self._model_reply: Reply | None = None
        self.details = ""
        self._steps_after_end = 0
        self._lockstep = self._make_lockstep(system, revision, config)
        reuses_ids = self.monitor.history.features.reuses_ids(config)
        self._names = Names() if reuses_ids else None
        self.broken_at_start = [] if fault is None else self._fault(fault)

    def add(self, request: Request) -> list[Broken]:
        """Add a request. If the target refuses it, it does not become part of the run."""
        history = self.monitor.history
        request = history.features.as_sent(history.config, request)
        sent = request.for_target()
        if self._names is not None:
            sent |= self._names.chosen(request, {*history.live, *history.aborts_to_report})
        try:
            refusal = read_ok("add", call_target("add", self._target.add, sent))
        except CRASHES_AND_HANGS as fault:
            return self._fault(fault)
        if refusal is not None:
            self.rejected[request.id] = refusal
            return self.monitor.refused(request, refusal)
        self.monitor.accept(request)
        if self._names is not None:
            self._names.accept(request.id, sent["id"])
        if self._lockstep is not None:
            reply = self._lockstep.add(request.for_target())
            if not reply["ok"] and self.monitor.history.live[request.id].never_runnable:
                # Targets are free in how they treat a request that can never run.
                self._lockstep = None
            elif not reply["ok"]:
                self._lockstep = None
                message = f"{request.id} is accepted, but the model refuses it: {reply['message']}"
                return [Broken(LOCKSTEP, self.monitor.history.step, message)]
        return []

    def abort(self, request_id: str, inside: bool) -> list[Broken]:
        """Abort a request. If the target does not support this, the run continues without the
        abort."""
        try:
            name = request_id if self._names is None else self._names.of(request_id)
            args = (name, True) if inside else (name,)
            unsupported = read_ok("abort", call_target("abort", self._target.abort, *args))
        except CRASHES_AND_HANGS as fault:
            return self._fault(fault)
        self.cannot_abort = unsupported is not None
        if unsupported is not None:
            self.not_aborted.add(request_id)
        else:
            self.monitor.abort(request_id, inside)
            if self._lockstep is not None:
                self._lockstep.abort(request_id, inside)
        return []

    def control(self, kind: str) -> list[Broken]:
        """Perform a control event, if the target declares it. Return the broken rules."""
        if kind not in self.started.controls:
            self.left_out[kind] += 1
            return []
        try:
            done = read_control(call_target("control", self._target.control, kind))
        except CRASHES_AND_HANGS as fault:
            return self._fault(fault)
        self.monitor.control(kind, done)
        if self._lockstep is None:
            return []
        expected = self._lockstep.control(kind)
        if expected["ok"] and expected["done"] == done:
            return []
        self._lockstep = None
        words = (
            f"done: target {done}, model {expected['done']}"
            if expected["ok"]
            else f"the model has none: {expected['message']}"
        )
        return [Broken(LOCKSTEP, self.monitor.history.step, f"{kind}: {words}")]

    def step(self) -> list[Broken]:
        """Take one step and judge it.

        Raises:
            TargetBroken: the reply is not a step observation.
        """
        self._model_reply = None
        try:
            reply = call_target("step", self._target.step)
            step = read_step(reply, self.started.observes)
            if self._names is not None:  # only the names in a valid step can be restored
                reply = {**reply, "step": self._names.restored(msgspec.to_builtins(step))}
                step = read_step(reply, self.started.observes)
            if step.completes is not None:  # the protocol determines when decisions complete
                step = replace(step, completes=None)
        except CRASHES_AND_HANGS as fault:
            return self._fault(fault)
        differences: list[str] | None = None
        if self._lockstep is not None:
            self._model_reply = self._lockstep.step()
            if self._model_reply["ok"]:
                differences = self._differences(step, reply["step"])
            else:
                self._model_reply = None
            # the model does not predict what comes after this
            if differences or self._model_reply is None:
                self._lockstep = None
        history = self.monitor.history
        self.recent.append((history.step, step))
        continued = self.unfinished or bool(history.aborts_to_report)
        broken = self.monitor.observe(step, differences)
        if continued:
            self._steps_after_end = history.features.steps_after_end(history)
        elif self._steps_after_end:
            self._steps_after_end -= 1
        return broken

    @property
    def excerpt(self) -> Excerpt:
        return Excerpt(self.started.version, tuple(self.recent), self.details)

    @property
    def expected(self) -> Step | None:
        """Return the model's last step, with only the fields that the target shows. Return None if
        there is no model."""
        if self._model_reply is None:
            return None
        whole = read_step(self._model_reply, frozenset())
        return lockstep.shown(whole, self.started.observes)

    def _differences(self, step: Step, seen: Mapping[str, Any]) -> list[str]:
        """Return the differences between the target's step and the model's.

        The two steps are nearly always equal, so the replies are compared first and parsed only if
        they differ.
        """
        assert self._model_reply is not None
        if lockstep.equal_at_sight(seen, self._model_reply["step"]):
            return []
        expected = self.expected
        assert expected is not None
        return lockstep.differences(step, expected)

    @property
    def unfinished(self) -> bool:
        return bool(self.monitor.history.live)

    @property
    def is_over(self) -> bool:
        """Return whether every request has ended, no token is in flight, and no block is being
        loaded or sent."""
        return not (self.unfinished or self._steps_after_end)

    @property
    def stands_still(self) -> bool:
        """Return whether the target is paused and can do nothing until it is resumed."""
        history = self.monitor.history
        return history.pause_steps > history.features.idle_steps(history)

    @property
    def is_stuck(self) -> bool:
        """Return whether further steps are pointless: requests are unfinished, but none has made
        progress for many steps. If ALL-R06 is checked, the run must go on until its bound."""
        if self.monitor.history.barren_steps < STUCK:
            return False
        return all(rule.id != COMPLETION for rule in self.checked)

    @property
    def at_rest(self) -> bool:
        """Return whether the target is a model that has no requests and waits for one to arrive."""
        target = self._target
        if type(target) is not ModelTarget or self._lockstep is not None or self.unfinished:
            return False
        return target.at_rest

    def skip_to(self, number: int) -> int:
        """Continue with the step of this number. Nothing happens in the steps before it."""
        self.monitor.history.step = number
        return number

    def _fault(self, fault: TargetFault) -> list[Broken]:
        if isinstance(fault, TargetHung):
            self.details = fault.details
            return self.monitor.hung(str(fault), place_of(fault.details))
        if isinstance(fault, TargetCrashed):
            self.details = fault.details
            hint = f"; to refuse a configuration, {REFUSING}" if fault.op == "start" else ""
            return self.monitor.crashed(f"{fault}{hint}", place_of(fault.details))
        if isinstance(fault, TargetDied):
            self.details = fault.stderr_tail
        return self.monitor.crashed(str(fault), place_of(self.details))

    def _make_lockstep(
        self, system: str, revision: str, config: Mapping[str, Any]
    ) -> ModelTarget | None:
        lockstep_rule = next((rule for rule in self.checked if rule.id == LOCKSTEP), None)
        if lockstep_rule is None or (
            type(self._target) is ModelTarget and not lockstep_rule.beside
        ):
            return None
        model = ModelTarget()
        started = model.start(system, lockstep_rule.beside or revision, config)
        return model if started["ok"] else None


def start_target(target: Target, system: str, revision: str, config: Mapping[str, Any]) -> Started:
    """Start a target, and return its reply.

    Raises:
        ConfigRefused: the target cannot run with the configuration.
        TargetFault: the target does not start, or its reply is invalid. The message of a crash
            names the configuration.
    """
    try:
        return read_started(call_target("start", target.start, system, revision, config))
    except TargetCrashed as crash:
        raise _in_configuration(crash, system, revision, config) from None


def _in_configuration(
    crash: TargetCrashed, system: str, revision: str, config: Mapping[str, Any]
) -> TargetCrashed:
    usual = full_config(system, revision, {})
    changes = [f"{k}={json.dumps(v)}" for k, v in config.items() if v != usual.get(k, ...)]
    what = f"{crash.message}, in the configuration {' '.join(changes) or 'by default'}"
    return TargetCrashed("start", f"{what}; to refuse it, {REFUSING}", crash.details)


def _started_by_default(
    target: Target, system: str, revision: str, config: Mapping[str, Any], fault: TargetFault
) -> Started:
    """Return the reply to a start in the default configuration, after `fault` occurred in the
    configuration `config`.

    If the target does not start by default either, raise `fault`, because the target may just be
    installed incorrectly. Finally, start the target with `config` again, to bring it back into the
    state in which the fault left it. If the fault does not occur again, raise TargetBroken.
    """
    try:
        usual = full_config(system, revision, {})
        started = read_started(call_target("start", target.start, system, revision, usual))
    except TargetFault:
        if isinstance(fault, TargetCrashed):
            raise _in_configuration(fault, system, revision, config) from None
        raise fault from None
    try:
        read_started(call_target("start", target.start, system, revision, config))
    except type(fault):
        return started
    except TargetFault:
        pass
    why = f"{fault}, but not when it was started again: the target is not deterministic"
    raise TargetBroken("start", why, "")


def call_target(op: str, method: Any, *args: Any) -> Reply:
    """Call a target. If the target runs in this process and raises an exception, this counts as a
    crash of its scheduler.

    Raises:
        TargetFault: a fault of the target, or a crash.
        AdapterFault: the method does not take these arguments.
    """
    try:
        reply: Reply = method(*args)
    except TargetFault:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ not in LEAVE:
            raise
        is_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
        if isinstance(error, TypeError) and is_call:
            raise AdapterFault(op, f"it cannot be called ({error})", "") from None
        raise TargetCrashed(op, describe_exception(error), traceback.format_exc()) from None
    return reply


class Names:
    """The ids by which a target knows the requests of a run, if ids are reused.

    The scenario, the history and the model have a separate name for each request.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # by request, its id at the target
        self._newest: dict[str, str] = {}  # by id at the target, the newest request that has it
        self._told: dict[str, str] = {}  # `_newest` after the last step

    def chosen(self, request: Request, unfinished: Collection[str]) -> dict[str, str]:
        """Return the fields to change when a request is sent to the target. The target sees the id
        that the request reuses. If an unfinished request still has that id, the target sees another
        one."""
        taken = {self.of(name) for name in unfinished}
        name = request.sent_as or request.id
        if name in taken:
            name = request.id
        while name in taken:
            name += "'"
        return {} if name == request.id else {"id": name, "stream": request.id}

    def accept(self, request: str, sent: str) -> None:
        self._ids[request] = sent
        self._newest[sent] = request

    def of(self, request: str) -> str:
        return self._ids.get(request, request)

    def restored(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step with the scenario's names. An id stands for the newest request that has it.
        However, in the list of requests that the worker drops, an id stands for the request that
        had this id before the step."""
        seen = rename_requests(step, self._newest)
        if dropped := step.get("sent", {}).get("dropped"):
            seen["sent"] = {
                **seen["sent"],
                "dropped": [self._told.get(name, name) for name in dropped],
            }
        self._told = {**self._newest}
        return seen
