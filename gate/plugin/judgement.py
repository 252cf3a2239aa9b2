"""Run one gate per session; all tests share its verdict."""

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from filelock import FileLock

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.scenario import Scenario
from ...model.systems import check_system, full_config, resolve_revision
from ...properties.checking.session import start_target
from ...properties.rules.registry import applies
from ...spec.catalogue import CatalogueError, Rule, load
from ..console import INCONCLUSIVE, shortened
from ..console.option_checks import check_choice, option
from ..console.output import one_line
from ..files.project_file import read_project
from ..files.scenario_file import FileError
from ..judging.context import BreakOff, GateContext, GateOptions
from ..judging.deviations import Deviations, read_deviations
from ..judging.initial_replays import replay_entries
from ..judging.judge import judge
from ..judging.profiles import PROFILES, set_hypothesis_home
from ..judging.rule_choice import excluded_ids, use_rules
from ..judging.verdict import Event, Found, Verdict, nothing_accepted
from ..reports.outcome import NOTHING_ACCEPTED, explanation_lines, refused_parts
from ..targets.factory import Opened, opened
from ..targets.supported_releases import ReleaseError
from ..targets.target_spec import TargetSpec, UnknownTargetError, parse_target

CORPUS = "schedproof-corpus"
BAD_INPUT = (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError, ConfigRefused)


class Setting(NamedTuple):
    """The gate that the user's configuration file describes."""

    target: TargetSpec
    system: str
    revision: str
    profile: str
    seed: int
    corpus: Path
    deviations: Deviations
    rules: Sequence[Rule]
    excluded: Mapping[str, str]
    extra_rules: Path | None = None


def read_setting(root: Path, given: Mapping[str, str]) -> Setting:
    """Return the setting that the plugin's options describe.

    In `given`, an option without a value is "". Paths are relative to `root`. Raise
    pytest.UsageError if an option is invalid.
    """
    try:
        return _read(root, given)
    except BAD_INPUT as error:
        raise pytest.UsageError(f"schedproof: {one_line(str(error))}") from None


def _read(root: Path, given: Mapping[str, str]) -> Setting:
    given = _add_project_options(root, given)
    spec = parse_target(given["target"])
    system = given["system"] or spec.default_system
    with option("schedproof_system"):
        check_system(system)
    named = given["revision"] or spec.default_revision()
    with option("schedproof_revision"):
        revision = resolve_revision(system, named)
    profile = given["profile"] or "quick"
    check_choice("schedproof_profile", profile, PROFILES)
    seed = given["seed"] or "0"
    if not (seed.isascii() and seed.isdigit() and len(seed) < 20):
        raise InputError("schedproof_seed", f"{seed!r}; valid: a number, 0 or more")
    corpus = root / (given["corpus"] or CORPUS)
    if given["corpus"] and not corpus.is_dir():
        raise InputError("schedproof_corpus", f"{corpus} is not a folder")
    extra_rules = root / given["extra_rules"] if given["extra_rules"] else None
    use_rules(extra_rules)
    catalogue = load(system, revision)
    deviations = Deviations()
    if given["deviations"]:
        path = root / given["deviations"]
        deviations = read_deviations(path, system, catalogue, datetime.date.today())
    words = [given["exclude"]] if given["exclude"] else []
    left_out = {**dict.fromkeys(excluded_ids(catalogue, words), "excluded"), **deviations.by_design}
    rules = [rule for rule in catalogue if applies(rule, revision) and rule.checked]
    return Setting(
        *(spec, system, revision, profile, int(seed), corpus, deviations, rules, left_out),
        extra_rules,
    )


def _add_project_options(root: Path, given: Mapping[str, str]) -> Mapping[str, str]:
    """Fill in options from `[tool.schedproof]`. Leave out the profile, because tests run more often
    than gates."""
    given = {**given, "extra_rules": ""}  # pytest has no option for it
    project = read_project(root).given
    if project.get("target", given["target"]) != given["target"]:
        return given  # the project file describes another target
    project["exclude"] = ",".join(project.get("exclude", ()))
    keys = ("system", "revision", "corpus", "deviations", "exclude", "extra_rules")
    return {**given, **{key: given[key] or project.get(key, "") for key in keys}}


class BrokenOff(TargetFault):
    """Raised if the gate ended early. The message gives the reason in one line."""

    def __init__(self, fault: BreakOff) -> None:
        super().__init__(fault.text)
        self.details = fault.details


class Answer(msgspec.Struct, frozen=True):
    """The gate's verdict, and a report on each rule that was the first to break in some run."""

    verdict: Verdict
    reports: dict[str, str]


class Judgement:
    """One target and one gate. All workers of pytest-xdist on a machine share the answer."""

    def __init__(self, config: pytest.Config, setting: Setting) -> None:
        self.setting = setting
        self._config = config
        self._target = ExitStack()
        self._answer: Answer | None = None
        self._failure: Exception | None = None

    def answer(self, rules: frozenset[str]) -> Answer:
        if self._failure is not None:  # one test shows the error in full, and fails
            pytest.skip(f"not judged: {shortened(one_line(str(self._failure)))}")
        try:
            self._answer = self._answer or self._shared(rules)
        except (*BAD_INPUT, TargetFault) as error:
            self._failure = error
            raise
        return self._answer

    @cached_property
    def open_target(self) -> Opened:
        """Open the target. A user's own target runs in the folder of the configuration file."""
        entering = opened(self.setting.target, folder=self._config.rootpath, imports=self._imports)
        return self._target.enter_context(entering)

    @property
    def _imports(self) -> tuple[str, ...]:
        root = self._config.rootpath
        return tuple(str(root / path) for path in self._config.getini("pythonpath"))

    def known_failures(self, scenario: Scenario) -> Deviations:
        """Replay the known deviations on this target, and return them. The target must accept
        `scenario`."""
        setting, target = self.setting, self.open_target.target
        known = setting.deviations
        if known.entries:
            config = full_config(setting.system, setting.revision, scenario.config)
            started = start_target(target, setting.system, setting.revision, config)
            known.begin(started.name, started.version)
            replay_entries(known, target, setting.revision, setting.rules)
        return known

    def close(self) -> None:
        self._target.close()
        use_rules(None)

    def _shared(self, rules: frozenset[str]) -> Answer:
        basetemp = self._config.getoption("basetemp")
        if not (hasattr(self._config, "workerinput") and basetemp):
            return self._judged(rules)
        with _alone(Path(basetemp).parent / "schedproof") as file:
            if file.exists():
                return msgspec.json.decode(file.read_bytes(), type=Answer)
            answer = self._judged(rules)
            file.write_bytes(msgspec.json.encode(answer))
        return answer

    def _judged(self, rules: frozenset[str]) -> Answer:
        set_hypothesis_home()
        setting, found = self.setting, list[Found]()

        def keep(event: Event) -> None:
            if isinstance(event, Found):
                found.append(event)

        root = self._config.rootpath
        options = GateOptions(
            spec=setting.target,
            system=setting.system,
            revision=setting.revision,
            rules=[rule for rule in setting.rules if rule.id in rules - setting.excluded.keys()],
            extra_rules=setting.extra_rules and Path(os.path.relpath(setting.extra_rules)),
            excluded={name: why for name, why in setting.excluded.items() if name in rules},
            profile_name=setting.profile,
            seed=setting.seed,
            out=Path(os.path.relpath(root / "schedproof-out")),
            folder=root,
            imports=self._imports,
        )
        open_target = self.open_target
        gate = GateContext(
            options, open_target.target, keep, open_target.stderr, setting.deviations
        )
        verdict = judge(gate)
        if gate.results.interrupted:
            raise KeyboardInterrupt
        if gate.results.fault is not None:
            raise BrokenOff(gate.results.fault)
        if verdict.exit_code == INCONCLUSIVE and nothing_accepted(verdict.reach):
            # If nothing failed here, every test would be skipped, and pytest would report success.
            raise BrokenOff(BreakOff(NOTHING_ACCEPTED, ""))
        if (refused := refused_parts(verdict)) is not None:
            raise BrokenOff(BreakOff(refused, ""))
        return Answer(verdict, _reports(found, verdict, setting.rules))


def _reports(found: Sequence[Found], verdict: Verdict, rules: Sequence[Rule]) -> dict[str, str]:
    by_id, reports = {rule.id: rule for rule in rules}, dict[str, str]()
    faults = {fault.scenario: fault for fault in verdict.faults}
    for event in sorted(found, key=lambda event: event.finding.scenario not in faults):
        rule, fault = by_id[event.finding.rule], faults.get(event.finding.scenario)
        word = "ADAPTER" if event.finding.by_adapter else "BROKEN"
        lines = [f"fault {fault.number}:  {fault.means}"] if fault else []
        lines += explanation_lines(event, rule, fault)
        text = "\n".join([f"{word} {rule.id} {rule.title}", *(f"  {line}" for line in lines)])
        reports.setdefault(rule.id, text)
    return reports


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock", mode=0o600):
        yield folder / "answer.json"
