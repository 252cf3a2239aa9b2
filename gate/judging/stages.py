"""Run the independent stages of a gate, in this process or in several.

The results of a stage depend only on the stage and the options. They are combined in the order of
the stages, so the number of processes does not affect the verdict.
"""

import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple

from ...model.faults import TargetFault
from ...properties.rules.predicate import RuleFault
from ..processes.work_process import WorkProcess
from .context import BreakOff, GateContext, GateOptions, GateResults, opened_gate, shrink_model_of
from .deviations import Deviations
from .engines import search_scale
from .initial_replays import replay_builtin, replay_seeds, replay_workloads
from .profiles import set_hypothesis_home
from .rule_choice import use_rules
from .verdict import Found


@dataclass(frozen=True)
class Stage:
    """A stage of a gate: one engine at one scale.

    `known` lists the rules known to be broken, and `shrunk` is how many of them count towards
    --max-failures. `choices` gives the values of the configuration keys that the target declares.
    `avoid` lists the kinds of configuration that the target refuses. `within` names the scale whose
    configuration workloads start from.
    """

    kind: Literal["seeds", "builtin", "search", "workloads"]
    scale: str
    fixed: Mapping[str, Any] = field(default_factory=dict, hash=False)
    known: frozenset[str] = frozenset()
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    shrunk: int = 0
    avoid: frozenset[str] = frozenset()
    within: str = ""

    def run(self, gate: GateContext) -> frozenset[str]:
        if self.kind == "seeds":
            return replay_seeds(gate, self.scale, self.fixed)
        if self.kind == "builtin":
            replay_builtin(gate)
        elif self.kind == "workloads":
            replay_workloads(gate, self.scale, self.within, self.fixed, self.known)
        else:
            options = self.fixed, self.known, self.choices, self.shrunk, self.avoid
            search_scale(gate, self.scale, *options)
        return frozenset()


def run_stages(gate: GateContext, stages: Sequence[Stage]) -> dict[Stage, frozenset[str]]:
    """Run the stages and return, for each of them, the rules that it found to be broken.

    With several processes, a stage that ends early sets `gate.results.fault`, and the results of
    later stages are dropped.
    """
    if gate.options.jobs == 1 or len(stages) == 1:
        return _run_here(gate, stages)
    return _run_in_processes(gate, stages)


def _run_here(gate: GateContext, stages: Sequence[Stage]) -> dict[Stage, frozenset[str]]:
    broken = {}
    for stage in stages:
        broken[stage] = stage.run(gate)
        if gate.results.hung or gate.has_enough:
            break
    return broken


class _Task(NamedTuple):
    options: GateOptions
    deviations: Deviations
    version: str
    stage: Stage


class _Ended(NamedTuple):
    """The results of a stage and the rules that it found broken, or an error in one of the user's
    rules."""

    results: GateResults
    broken: frozenset[str] = frozenset()
    rule_fault: str = ""


@dataclass
class _Worker:
    at_work: WorkProcess
    found: list[Found] = field(default_factory=list)
    ended: _Ended | None = None

    def is_last(self, options: GateOptions) -> bool:
        results = None if self.ended is None else self.ended.results
        return results is not None and (results.hung or results.enough_for(options))


def _run_in_processes(gate: GateContext, stages: Sequence[Stage]) -> dict[Stage, frozenset[str]]:
    waiting, workers = list(stages), dict[Stage, _Worker]()
    try:
        while waiting or any(worker.ended is None for worker in workers.values()):
            running = {
                worker.at_work.pipe: worker for worker in workers.values() if worker.ended is None
            }
            while waiting and len(running) < gate.options.jobs:
                stage = waiting.pop(0)
                workers[stage] = worker = _start(gate, stage)
                running[worker.at_work.pipe] = worker
            for pipe in wait(list(running)):
                _receive(gate, running[pipe])  # type: ignore[index]
            if any(worker.is_last(gate.options) for worker in workers.values()):
                waiting.clear()
                _leave_later(stages, workers, gate.options)
    finally:
        for worker in workers.values():
            worker.at_work.ask_to_end()
        for worker in workers.values():
            worker.at_work.end()
        _add_in_order(gate, stages, workers)
    return {stage: ended.broken for stage in stages if (ended := workers[stage].ended) is not None}


def _start(gate: GateContext, stage: Stage) -> _Worker:
    task = _Task(gate.options, gate.deviations, gate.version, stage)
    return _Worker(WorkProcess.start(_run_stage, pickle.dumps(task)))


def _receive(gate: GateContext, worker: _Worker) -> None:
    try:
        message = worker.at_work.pipe.recv()
    except EOFError:
        message = _Ended(GateResults(fault=BreakOff("a process of the gate died", "")))
    if isinstance(message, _Ended):
        worker.ended = message
        if message.rule_fault:
            raise RuleFault(message.rule_fault)
    else:
        if isinstance(message, Found):
            worker.found.append(message)
        gate.report(message)


def _leave_later(
    stages: Sequence[Stage], workers: Mapping[Stage, _Worker], options: GateOptions
) -> None:
    started = [workers[stage] for stage in stages if stage in workers]
    first = next(number for number, worker in enumerate(started) if worker.is_last(options))
    for worker in started[first + 1 :]:
        if worker.ended is None:
            worker.at_work.ask_to_end()
            worker.ended = _Ended(GateResults())


def _add_in_order(
    gate: GateContext, stages: Sequence[Stage], workers: Mapping[Stage, _Worker]
) -> None:
    """Add the results of the stages in order, up to the first stage that ended early. If a stage's
    process has not ended, add only its findings so far."""
    for stage in stages:
        worker = workers.get(stage)
        if worker is None:
            return
        if worker.ended is None:
            gate.results.findings += [event.finding for event in worker.found]
            continue
        gate.results.add(worker.ended.results)
        if worker.ended.results.broken_off or gate.has_enough:
            return


def _with_own_coverage(options: GateOptions) -> GateOptions:
    """Return the options with a coverage folder that only this process uses."""
    if options.spec.coverage is None:
        return options
    folder = options.spec.coverage / f"{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return replace(options, spec=replace(options.spec, coverage=folder))


def _run_stage(pipe: Connection, packed: bytes) -> None:
    task: _Task = pickle.loads(packed)
    set_hypothesis_home()
    use_rules(task.options.extra_rules)
    options, results = _with_own_coverage(task.options), GateResults()
    broken: frozenset[str] = frozenset()
    with opened_gate(options, offline=True) as subject:
        gate = GateContext(
            replace(options, jobs=1),
            subject.target,
            pipe.send,
            subject.stderr,
            task.deviations,
            task.version,
            shrink_model_of(subject.target, options.system, task.version),
            results,
            subject.base,
        )
        try:
            broken = task.stage.run(gate)
        except TargetFault as fault:
            results.fault = BreakOff.of(fault, subject.stderr())
        except RuleFault as fault:
            pipe.send(_Ended(results, rule_fault=str(fault)))
            return
        results.deviation_status = dict(task.deviations.status)
    pipe.send(_Ended(results, broken))
