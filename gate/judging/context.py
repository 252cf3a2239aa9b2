"""The options, working objects and results of a gate."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.faults import TargetFault
from ...model.scenario import Scenario
from ...model.target import ModelTarget, Reply, Target
from ...properties.checking.difference import Difference
from ...properties.checking.differential_target import DifferentialTarget, Side
from ...properties.checking.replay import Outcome
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import (
    NEVER_CRASHES,
    NEVER_HANGS,
    NO_BLOCK_LOST,
    NONE_LOST,
    OWN_TOKENS,
)
from ...properties.search.state import Reach
from ...spec.catalogue import Rule, load
from ...spec.systems import SYSTEMS
from ..files.scenario_file import write_scenario
from ..targets.factory import opened
from ..targets.pipe import PipeTarget, forking
from ..targets.probe import ProbeRequest
from ..targets.target_spec import (
    MEMORY_LIMIT,
    STEP_LIMIT,
    TargetSpec,
    are_versions_of_one,
    replay_options,
)
from . import verdict
from .base import Base, BaseOptions, Compared, Noted
from .deviations import Deviations, New, State
from .profiles import PROFILES, Profile
from .verdict import Report

MAX_FAILURES = 10
# Failures that are always shrunk: crashes, hangs, and requests or blocks that are lost or
# duplicated.
WORST = (NEVER_CRASHES, NEVER_HANGS, NONE_LOST, NO_BLOCK_LOST, OWN_TOKENS)


@dataclass(frozen=True)
class GateOptions:
    """The options of a gate; they can be pickled for another process.

    Attributes:
        chosen: whether the user selected rules; `named` lists those that the user named in full.
        excluded: the reason for each rule that the user excluded, by rule id.
        max_failures: how many broken rules to shrink per scale; known divergences and `WORST` rules
            are not counted.
        step_limit, memory_limit: limits of the target's process, in seconds and MiB.
        first_only: whether to stop after the first stage that finds a failure.
        folder, imports: the folder in which a factory runs, and further folders from which its
            module may be imported.
        compare_with: the revision whose model runs alongside the target, "none", or None for the
            default.
        fixed: the configuration keys that have the same value in every run, with their values.
        forks: the socket of the server that forks the targets' processes.
    """

    spec: TargetSpec
    system: str
    revision: str
    rules: Sequence[Rule]
    chosen: bool = False
    named: frozenset[str] = frozenset()
    extra_rules: Path | None = None
    excluded: Mapping[str, str] = field(default_factory=dict, hash=False)
    profile_name: str = "ci"
    seed: int = 0
    max_failures: int = MAX_FAILURES
    out: Path = Path("schedproof-out")
    corpus: Sequence[Scenario] = ()
    step_limit: float = STEP_LIMIT
    memory_limit: int = MEMORY_LIMIT
    offline: bool = False
    first_only: bool = False
    jobs: int = 1
    folder: Path | None = None
    imports: tuple[str, ...] = ()
    compare_with: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict, hash=False)
    base: BaseOptions | None = None
    forks: Path | None = None

    @property
    def profile(self) -> Profile:
        return PROFILES[self.profile_name]

    @property
    def replay_options(self) -> str:
        return self.replay_options_of([rule.id for rule in self.rules] if self.chosen else None)

    def replay_options_of(self, rules: Sequence[str] | None) -> str:
        """Return the options for a command that replays a run of this gate and judges only these
        rules."""
        limits = self.step_limit, self.memory_limit
        left_out = sorted(self.excluded)
        return replay_options(
            self.spec, rules, *limits, self.compare_with, left_out, self.extra_rules
        )


class BreakOff(NamedTuple):
    """Why a gate ended early: a one-line message, and the end of the traceback or of stderr."""

    text: str
    details: str

    @classmethod
    def of(cls, fault: TargetFault, stderr: str) -> "BreakOff":
        return cls(str(fault), getattr(fault, "details", "") or stderr)


@dataclass
class GateResults:
    """The runs and findings of a gate so far.

    `exercised` counts, for each rule, the steps that exercised it; `exercised_cleanly` counts only
    steps of runs that broke no rule. `unconfirmed` lists rules that were broken once, but held when
    the same scenario was replayed. `hung` is set once the target has hung, because each further run
    may then take as long as the time limit.
    """

    exercised: Counter[str] = field(default_factory=Counter)
    exercised_cleanly: set[str] = field(default_factory=set)
    runs_cut_short: Counter[str] = field(default_factory=Counter)
    engines: list[verdict.EngineRun] = field(default_factory=list)
    findings: list[verdict.Finding] = field(default_factory=list)
    unconfirmed: set[str] = field(default_factory=set)
    deviation_status: dict[int, tuple[State, str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False
    hung: bool = False
    fault: BreakOff | None = None
    compared: Compared = field(default_factory=Compared)
    reach: Reach = field(default_factory=Reach)

    def count(self, outcome: Outcome) -> None:
        self.exercised.update(outcome.exercised)
        if not outcome.cut_short:
            self.exercised_cleanly |= (+outcome.exercised).keys()
        elif outcome.broken:
            self.runs_cut_short[outcome.broken[0].rule] += 1

    @property
    def broken_off(self) -> bool:
        return self.interrupted or self.hung or self.fault is not None

    def enough_for(self, options: GateOptions) -> bool:
        if options.base is not None and len(self.compared.differences) >= options.base.stop_after:
            return True
        return options.first_only and bool(self.findings)

    def add(self, other: "GateResults") -> None:
        self.exercised.update(other.exercised)
        self.exercised_cleanly |= other.exercised_cleanly
        self.runs_cut_short.update(other.runs_cut_short)
        self.engines += other.engines
        self.findings += other.findings
        self.unconfirmed |= other.unconfirmed
        for number, status in other.deviation_status.items():
            self.deviation_status.setdefault(number, status)
        self.refusals.update(other.refusals)
        self.interrupted |= other.interrupted
        self.hung |= other.hung
        self.fault = self.fault or other.fault
        self.compared.add(other.compared)
        self.reach += other.reach


@dataclass
class GateContext:
    """The options, the target and the results of one gate.

    `shrink_model` is the model of the target's release, if there is one. It makes the target's
    decisions faster, so failures are shrunk on the model and then confirmed on the target. `base`,
    if there is one, runs alongside `target`.
    """

    options: GateOptions
    target: Target
    report: Report
    stderr: Callable[[], str] = lambda: ""
    deviations: Deviations = field(default_factory=Deviations)
    version: str = ""
    shrink_model: Target | None = None
    results: GateResults = field(default_factory=GateResults)
    base: Base | None = None

    def __post_init__(self) -> None:
        if self.base is not None:
            self.results.compared = self.base.compared

    def in_run(self) -> New:
        """Return a filter for one run. It drops the failures that a known deviation or the base
        explains."""
        known = self.deviations.in_run()

        def new(broken: Sequence[Broken], scenario: Scenario) -> list[Broken]:
            unknown = known(broken, scenario)
            return (
                self.base.new(unknown, scenario) if self.base is not None and unknown else unknown
            )

        return new

    def record_run(self, scenario: Scenario, engine: str, scale: str, judge: bool = True) -> None:
        """Record how the change and its base differ in the run that has just finished. If rules
        are judged, report the first difference of each kind. Without a base, do nothing."""
        if self.base is None:
            return
        for noted in self.base.record_run(scenario, engine, scale, judge):
            difference = noted.difference
            if self.options.rules and difference is not None and not difference.breaks_rule:
                _, path = write_differing(self.options, noted, difference)
                at = (difference.step, scale, noted.found_after, str(path))
                self.report(verdict.Differed(difference.shape, *at))
        self.results.hung |= self.base.hangs

    def rules_beyond(self, known: Collection[str]) -> list[Rule]:
        """Return the rules to check in a run: those that are not in `known` and, with a base, the
        excluded rules, which do not end the run."""
        excluded = () if self.base is None else self.base.excluded
        return [*(rule for rule in self.options.rules if rule.id not in known), *excluded]

    def others_first(self, rule: str, shrunk: int) -> int:
        """Return how many findings have used up --max-failures. Return 0 if a finding of this rule
        may still be shrunk."""
        return 0 if rule in WORST or shrunk < self.options.max_failures else shrunk

    @property
    def has_enough(self) -> bool:
        return self.results.enough_for(self.options)

    @property
    def probe_request(self) -> ProbeRequest:
        options = self.options
        return ProbeRequest(
            self.target, options.system, options.revision, options.rules, options.fixed
        )


def write_differing(
    options: GateOptions, noted: Noted, difference: Difference
) -> tuple[Scenario, Path]:
    """Write the scenario of a difference to a file. Return the scenario, to which a name and an
    origin have been added, and the path of the file."""
    assert options.base is not None
    title = f"{difference.kind} between {options.spec.text} and {options.base.spec.text}"
    origin = {
        "engine": noted.engine or "hypothesis",
        "note": f"{title}: {difference.message}",
        "seed": options.seed if noted.engine != "corpus" else None,
    }
    named = replace(noted.scenario, name=title, origin=origin)
    return named, write_scenario(named, options.out, f"diff-{difference.kind}")


def shrink_model_of(target: Target, system: str, version: str) -> Target | None:
    """Return the model of the release that the target reports, or None if there is no such
    model."""
    decides_as = SYSTEMS[system].decides_as
    if type(target) in (ModelTarget, DifferentialTarget) or version not in decides_as:
        return None
    revision = decides_as[version]

    class ShrinkModel(ModelTarget):
        def start(self, system: str, _: str, config: Mapping[str, Any]) -> Reply:
            return super().start(system, revision, config)

    return ShrinkModel()


class OpenedGate(NamedTuple):
    """The target of a gate, or a target and its base, with their stderr. `forks` is the socket of
    the server that forks their processes."""

    target: Target
    stderr: Callable[[], str]
    base: Base | None = None
    forks: Path | None = None


@contextmanager
def opened_gate(
    options: GateOptions, *, offline: bool, notice: Callable[[str], None] = lambda _: None
) -> Iterator[OpenedGate]:
    specs = [options.spec, *([options.base.spec] if options.base else [])]
    with ExitStack() as server, ExitStack() as stack:
        installed = [
            stack.enter_context(
                opened(
                    spec,
                    step_limit=options.step_limit,
                    memory_limit=options.memory_limit,
                    offline=offline,
                    report=notice,
                    folder=options.folder,
                    imports=options.imports,
                )
            )
            for spec in specs
        ]
        pipes = [
            launched.target for launched in installed if isinstance(launched.target, PipeTarget)
        ]
        forks = options.forks
        if forks is None and len(specs) == len(pipes) and len(specs) * options.jobs > 1:
            forks = server.enter_context(forking(pipes))
        for pipe in pipes:
            pipe.forks = forks
        if options.base is None:
            yield OpenedGate(*installed[0], forks=forks)
            return
        for pipe in pipes:  # so that both targets load at the same time
            pipe.begin()
        sides = [
            Side(gate_target.target, *terms, stderr=gate_target.stderr)
            for gate_target, terms in zip(installed, options.base.terms, strict=True)
        ]
        # Without rules, the two targets may be unrelated, so only their decisions are compared.
        exact = bool(options.rules) and are_versions_of_one(options.spec, options.base.spec)
        pair = DifferentialTarget(*sides, exact=exact)
        catalogue = load(options.system, options.revision)
        excluded = [rule for rule in catalogue if rule.id in options.excluded]
        base = Base(pair, options.rules, excluded)
        yield OpenedGate(
            pair, lambda: "".join(gate_target.stderr() for gate_target in installed), base, forks
        )
