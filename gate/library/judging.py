"""Judge schedulers from Python: `open_target`, `read_scenario`, `judge`, `replay` and `search`."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import TargetBroken
from ...model.scenario import Scenario
from ...model.systems import check_system, make_model, resolve_revision
from ...model.target import Reply, Target
from ...properties.checking.replay import Outcome
from ...properties.checking.replay import replay as replay_steps
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import followed_by, observable
from ...properties.search.run import run_search
from ...properties.search.state import Search, SearchOptions
from ...properties.shrinking.shrink import shrink
from ...spec.catalogue import load
from ..console.option_checks import at_least, check_choice, option, resolved_revision
from ..console.output import plural
from ..corpus.folder import scenario_named
from ..files import scenario_file
from ..judging.context import MAX_FAILURES, GateContext, GateOptions
from ..judging.deviations import Deviations
from ..judging.judge import judge as judge_context
from ..judging.judge import run_gate
from ..judging.profiles import PROFILES, set_hypothesis_home
from ..judging.rule_choice import excluded_ids, rules_named, rules_to_judge, use_rules
from ..judging.verdict import Event, Verdict
from ..targets.factory import opened
from ..targets.jsonl import REQUIRED
from ..targets.pipe import read_reply
from ..targets.probe import SCALES, ProbeRequest, probe
from ..targets.scales import read_changes
from ..targets.target_spec import MEMORY_LIMIT, STEP_LIMIT, TargetSpec, parse_target


def read_scenario(path: Path | str) -> Scenario:
    """Return the scenario in a file in the format `schedproof/scenario@1`, or the built-in scenario
    with this name.

    Raises:
        FileError: the file cannot be read or is invalid. The message contains the JSON path of an
            invalid value.
    """
    return scenario_named(str(path))


def write_scenario(scenario: Scenario, folder: Path | str, name: str = "scenario") -> Path:
    """Write a scenario into a folder, atomically. Its content determines the file name.

    Raises:
        FileError: the folder cannot be written to.
    """
    return scenario_file.write_scenario(scenario, Path(folder), name)


AnyTarget = str | TargetSpec | Target


@contextmanager
def open_target(
    target: AnyTarget,
    *,
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    offline: bool = False,
) -> Iterator[Target]:
    """Open a target, for use in a `with` statement. If the target runs in a process, the process
    ends with the `with` block.

    Args:
        target: as on the command line ("model", "my_pkg.sched:make_target", "vllm==0.28.0"), or an
            object with the methods start, add, abort, step and stop.
        step_limit: seconds that the target's process may take for a step.
        memory_limit: MiB that the process may use.
        offline: never install a release.

    Raises:
        UnknownTargetError, ReleaseError, InputError: there is no such target.
    """
    if not isinstance(target, str | TargetSpec):
        yield _ObjectTarget(target)
        return
    spec = parse_target(target) if isinstance(target, str) else target
    with opened(
        spec, step_limit=step_limit, memory_limit=memory_limit, offline=offline
    ) as opened_target:
        yield opened_target.target


class _ObjectTarget:
    """Wrap a user's object so that its arguments and replies are copied, as if they went through a
    pipe. So the object may keep or change its arguments."""

    def __init__(self, target: Target) -> None:
        _check_object(target)
        self._target = target

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        return _plain("start", self._target.start(system, revision, _copied(config)))

    def add(self, request: Mapping[str, Any]) -> Reply:
        return _plain("add", self._target.add(_copied(request)))

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002 (the protocol's word)
        return _plain("abort", self._target.abort(id, *[True] * inside))

    def control(self, kind: str) -> Reply:
        return _plain("control", self._target.control(kind))

    def step(self) -> Reply:
        return _plain("step", self._target.step())

    def stop(self) -> Reply:
        return _plain("stop", self._target.stop())


def _copied(sent: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(sent))
    return copied


def _plain(op: str, reply: Any) -> Reply:
    try:
        line = json.dumps(reply).encode()
    except Exception as error:
        why = f"the reply cannot be written as JSON: {type(error).__name__}"
        raise TargetBroken(op, why, "") from None
    return read_reply(op, line)


def spec_of(target: AnyTarget) -> TargetSpec:
    if isinstance(target, TargetSpec):
        return target
    if isinstance(target, str):
        return parse_target(target)
    _check_object(target)
    kind = type(target)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return TargetSpec(name, "factory", module=kind.__module__, factory=kind.__qualname__)


def _check_object(target: Any) -> None:
    """Raise InputError if this cannot be a target, because its first call would look like a crash
    of the scheduler."""
    if isinstance(target, type):
        name = target.__name__
        raise InputError("target", f"the class {name}; valid: an object, such as {name}()")
    if not callable(getattr(target, "start", None)):
        valid = f"a text, or an object with the methods {', '.join(REQUIRED)}"
        raise InputError("target", f"{target!r:.60}; valid: {valid}")


def _check_types(
    rules: Sequence[str] | None = None, seed: int = 0, corpus: Sequence[Scenario] = ()
) -> None:
    if isinstance(rules, str):
        raise InputError("rules", f"{rules!r:.60}; valid: a list of ids")
    if not isinstance(seed, int):
        raise InputError("seed", f"{seed!r:.60}; valid: an integer")
    if isinstance(corpus, str | Path) or not all(isinstance(s, Scenario) for s in corpus):
        raise InputError("corpus", f"{corpus!r:.60}; valid: a list of scenarios")


SHRINK_ATTEMPTS = 250


class Counterexample(NamedTuple):
    """A run that breaks a rule.

    Attributes:
        scenario: the run, shrunk.
        broken: the rules that its last step breaks, in catalogue order.
    """

    scenario: Scenario
    broken: tuple[Broken, ...]


def gate_options(
    spec: TargetSpec,
    *,
    system: str | None = None,
    revision: str | None = None,
    rules: Sequence[str] | None = None,
    profile: str = "ci",
    seed: int = 0,
    max_failures: int = MAX_FAILURES,
    out: Path = Path("schedproof-out"),
    corpus: Sequence[Scenario] = (),
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    offline: bool = False,
    jobs: int = 1,
    compare_with: str | None = None,
    changes: Sequence[str] = (),
    exclude: Sequence[str] = (),
    by_design: Mapping[str, str] = MappingProxyType({}),
    extra_rules: Path | None = None,
) -> GateOptions:
    """Check the options of a gate and return them. None stands for the target's default.

    `by_design` gives the reason for each rule that is not judged. Raise InputError or
    CatalogueError if an option is invalid.
    """
    system = spec.default_system if system is None else system
    with option("--system"):
        check_system(system)
    resolved = resolved_revision(system, revision, spec.default_revision())
    if spec.is_plain_model:
        with option("--revision"):
            make_model(system, resolved, {})
    check_choice("--profile", profile, PROFILES)
    at_least("--seed", seed, 0)
    at_least("--max-failures", max_failures, 1)
    at_least("--jobs", jobs, 1)
    catalogue = load(system)
    left_out = {**dict.fromkeys(excluded_ids(catalogue, exclude), "--exclude"), **by_design}
    named = rules_named(catalogue, rules) if rules else {}
    if both := [rule for rule in by_design if named.get(rule)]:
        problem = f"{both[0]} is excluded by design, but --rule names it; valid: one of the two"
        raise InputError("--deviations", problem)
    return GateOptions(
        spec=spec,
        system=system,
        revision=resolved,
        rules=rules_to_judge(system, rules, resolved, spec, compare_with, tuple(left_out)),
        chosen=bool(rules),
        named=frozenset(rule for rule, in_full in named.items() if in_full),
        extra_rules=extra_rules,
        excluded=left_out,
        profile_name=profile,
        seed=seed,
        max_failures=max_failures,
        out=out,
        corpus=corpus,
        step_limit=step_limit,
        memory_limit=memory_limit,
        offline=offline,
        jobs=jobs,
        compare_with=compare_with,
        fixed=read_changes(system, resolved, changes, {}),
    )


def judge(
    target: AnyTarget,
    *,
    system: str | None = None,
    revision: str | None = None,
    rules: Sequence[str] | None = None,
    profile: str = "quick",
    seed: int = 0,
    out: Path | str = "schedproof-out",
    corpus: Sequence[Scenario] = (),
    jobs: int = 1,
    compare_with: str | None = None,
    exclude: Sequence[str] = (),
    extra_rules: Path | str | None = None,
    report: Callable[[Event], None] = lambda _: None,
) -> Verdict:
    """Judge a scheduler as `schedproof gate` does; the verdict has one entry per rule.

    Args:
        target: as for `open_target`.
        system, revision: the rules that apply; None for those that the target implies.
        rules: ids of the rules to check; None for all.
        profile: how much to search: quick, ci or nightly.
        seed: the same seed gives the same verdict.
        out: folder for the scenarios of broken rules.
        corpus: scenarios to replay first.
        jobs: number of processes; must be 1 if the target is an object.
        compare_with: the revision whose model runs alongside the target, or "none". None stands for
            `revision`, if rule ALL-R07 applies to it.
        exclude: ids or patterns of rules that the target breaks on purpose.
        extra_rules: a Python file whose list RULES of OwnRule is judged as well.
        report: receives every event while the gate runs.

    Raises:
        InputError, CatalogueError, UnknownTargetError, ReleaseError: an argument is invalid.
        TargetFault, ConfigRefused: the target does not start, or accepts no configuration.
    """
    spec = spec_of(target)
    _check_types(rules, seed, corpus)
    file = None if extra_rules is None else Path(extra_rules)
    use_rules(file)
    with _arguments():
        options = gate_options(
            spec,
            system=system,
            revision=revision,
            rules=rules,
            profile=profile,
            seed=seed,
            out=Path(out).absolute(),  # the target may change the working directory
            corpus=corpus,
            jobs=jobs,
            compare_with=compare_with,
            exclude=exclude,
            extra_rules=file,
        )
    if isinstance(target, str | TargetSpec):
        return run_gate(options, Deviations(), report)[0]
    if jobs != 1:
        raise InputError("jobs", f"{jobs}; valid if the target is an object: 1")
    set_hypothesis_home()
    return judge_context(GateContext(options, _ObjectTarget(target), report))


@contextmanager
def _arguments() -> Iterator[None]:
    """Within the block, make input errors name the Python argument instead of the command-line
    option."""
    try:
        yield
    except InputError as error:
        if not error.path.startswith("--"):
            raise
        name = error.path.removeprefix("--").replace("-", "_")
        raise InputError("rules" if name == "rule" else name, error.problem) from None


def replay(
    scenario: Scenario,
    target: AnyTarget = "model",
    *,
    rules: Sequence[str] | None = None,
    extra_rules: Path | str | None = None,
) -> Outcome:
    """Run one scenario on a target, and judge every step until the run ends or a rule is broken.

    Args:
        scenario: from `read_scenario`, or made in Python.
        target: as for `open_target`.
        rules: ids of the rules to check; None for all.
        extra_rules: as for `judge`.

    Raises:
        InputError, CatalogueError, ConfigRefused: the scenario or a rule is not valid for this
            target.
        TargetFault: a reply of the target breaks the protocol.
    """
    _check_types(rules)
    use_rules(None if extra_rules is None else Path(extra_rules))
    revision = resolve_revision(scenario.system, scenario.revision)
    chosen = rules_to_judge(scenario.system, rules, revision, spec_of(target))
    with open_target(target) as opened_target:
        return replay_steps(opened_target, scenario, chosen)


def search(
    rule: str,
    target: AnyTarget = "model",
    *,
    system: str | None = None,
    revision: str | None = None,
    scale: str = "small",
    examples: int = 400,
    seed: int = 0,
) -> Counterexample | None:
    """Search a target with Hypothesis for a run that breaks a rule. Return None if no such run is
    found.

    A search can find a counterexample, but it cannot prove that there is none. If the rule was
    exercised in no run, a UserWarning says so.

    Args:
        rule: the id of one rule. The target must show the fields that the rule needs.
        target: as for `open_target`.
        system, revision: which rules apply; None for what the target implies.
        scale: small, short, tight or production.
        examples: the number of runs.
        seed: the same seed gives the same runs.

    Raises:
        InputError, CatalogueError, UnknownTargetError, ReleaseError: an argument is invalid.
        TargetFault, ConfigRefused: a reply of the target breaks the protocol, or the target accepts
            no configuration.
    """
    _check_types(seed=seed)
    with _arguments():
        options = gate_options(
            spec_of(target), system=system, revision=revision, rules=[rule], seed=seed
        )
    if options.named != {rule}:
        raise InputError("rule", f"{rule!r}; valid: the id of one rule")
    check_choice("scale", scale, (*SCALES, "production"))
    at_least("examples", examples, 1)
    set_hypothesis_home()
    with open_target(target) as opened_target:
        _check_can_be_judged(opened_target, options, rule)
        search_options = SearchOptions(
            opened_target, options.system, options.revision, options.rules, scale
        )
        found = Search(search_options)
        if not run_search(found, examples, seed, 0) or found.failure is None:
            if not found.exercised[rule]:
                about = f"{rule} was not exercised in {plural(found.runs, 'run')}"
                warnings.warn(f"{about}, so the search says nothing about it", stacklevel=2)
            return None
        scenario, _ = found.failure

        def still_breaks(candidate: Scenario) -> bool:
            return bool(replay_steps(opened_target, candidate, options.rules).broken)

        smallest = replace(
            shrink(scenario, still_breaks, SHRINK_ATTEMPTS),
            origin={"engine": "hypothesis", "seed": seed, "rule": rule},
        )
        return Counterexample(
            smallest, tuple(replay_steps(opened_target, smallest, options.rules).broken)
        )


def _check_can_be_judged(target: Target, options: GateOptions, rule: str) -> None:
    """Raise ConfigRefused if the target accepts no configuration, and InputError if it does not
    show what the rule needs."""
    system, revision, rules = options.system, options.revision, options.rules
    shows = probe(ProbeRequest(target, system, revision, rules)).shows
    if observable(rules, revision, shows, system=system):
        return
    needs = {*followed_by(system, revision), *(need for known in rules for need in known.needs)}
    missing = ", ".join(sorted(needs - shows))
    why = f"{rule} cannot be checked on this target, which does not show {missing}"
    raise InputError("rule", f"{why}; valid: a rule that it shows enough to check")
