"""The plugin's tests: one per rule, one per scenario of the corpus, and one for known
deviations.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.scenario import Scenario
from ...properties.checking.replay import Outcome
from ...properties.checking.replay import replay as run_replay
from ...spec.catalogue import load
from ..console import output
from ..corpus.folder import check_rule, files, read_entry
from ..corpus.replay import never_exercised
from ..files.scenario_file import FileError
from ..judging.verdict import RuleVerdict
from ..reports.terminal import summary
from ..targets.target_spec import STEP_LIMIT, blame, replay_options
from . import JUDGEMENT, REPORTED
from .judgement import BAD_INPUT, Judgement


class Failed(Exception):  # noqa: N818 (a finding, not an error)
    """Raised to fail a test with a complete report."""


class RuleFile(pytest.File):
    """The configuration file that names the target. Its tests are named after rules and
    scenarios."""

    def collect(self) -> Iterator[pytest.Item]:
        judgement = self.config.stash[JUDGEMENT]
        for rule in judgement.setting.rules:
            yield RuleItem.from_parent(self, name=rule.id, title=rule.title)
        if judgement.setting.deviations.entries:
            yield DeviationsItem.from_parent(self, name="deviations", title="known deviations")
        if judgement.setting.corpus.is_dir():
            rules = {rule.id for rule in judgement.setting.rules}
            for path in files(judgement.setting.corpus):
                title = output.one_line(path.name)
                name = title if path.stem in rules else title.removesuffix(".json")
                yield ScenarioItem.from_parent(self, name=name, title=title, file=path)


class _Item(pytest.Item):
    def __init__(self, *, title: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.title = title
        self.add_marker("schedproof")

    @property
    def judgement(self) -> Judgement:
        return self.config.stash[JUDGEMENT]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.name} {self.title}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failed):
            return str(excinfo.value)
        if isinstance(excinfo.value, (*BAD_INPUT, TargetFault)):
            details = output.last_lines(getattr(excinfo.value, "details", "") or "")
            lines = [f"  | {line}" for line in details]
            return "\n".join([f"schedproof: {output.one_line(str(excinfo.value))}", *lines])
        return super().repr_failure(excinfo, style)

    def answered(self) -> Any:
        items = self.session.items
        answer = self.judgement.answer(
            frozenset(item.name for item in items if isinstance(item, RuleItem))
        )
        line = summary(answer.verdict, self.judgement.setting.rules)
        ran = f"{sum(engine.runs for engine in answer.verdict.engines)} runs"
        self.user_properties.append((REPORTED, f"{output.one_line(line)}, {ran}"))
        return answer


class RuleItem(_Item):
    """The gate's verdict on one rule, as a test."""

    def runtest(self) -> None:
        answer = self.answered()
        [judged] = [rule for rule in answer.verdict.rules if rule.id == self.name]
        _conclude(judged, answer.reports)


def _conclude(judged: RuleVerdict, reports: dict[str, str]) -> None:
    says = output.one_line(judged.message or "")
    if judged.status == "held":
        return
    if judged.status == "known":
        pytest.xfail(says)
    if judged.status == "violated":
        by = judged.consequence_of
        with_it = (
            f"{judged.id} was broken in the same step as {by}" if by else f"{judged.id}: {says}"
        )
        raise Failed(reports.get(judged.id) or with_it)
    if judged.status == "inconclusive":
        raise Failed(reports.get(judged.id) or f"{judged.id} inconclusive: {says}")
    pytest.skip(f"{judged.status.replace('_', ' ')}: {says}")


class DeviationsItem(_Item):
    """A test that fails if an entry in the file of deviations is out of date."""

    def runtest(self) -> None:
        verdict = self.answered().verdict
        old = [
            f"{entry.state}: {entry.rule} ({entry.scenario or entry.version}): "
            + output.one_line(entry.says)
            for entry in verdict.deviations
            if entry.fails
        ]
        if old:
            raise Failed("\n".join(old))


class ScenarioItem(_Item):
    """The replay of one corpus scenario, as a test."""

    def __init__(self, *, file: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file = file

    def runtest(self) -> None:
        setting = self.judgement.setting
        entry = read_entry(self.file)
        scenario = entry.scenario
        if scenario.system != setting.system:
            pytest.skip(
                f"the scenario is for {scenario.system}, but the target is for {setting.system}"
            )
        check_rule(entry)
        if entry.rule in setting.excluded:
            pytest.skip(f"excluded: {output.one_line(setting.excluded[entry.rule])}")
        rules = [rule for rule in setting.rules if rule.id not in setting.excluded]
        target = self.judgement.open_target.target
        meant = replace(scenario, revision=setting.revision)
        try:
            known = self.judgement.known_failures(meant)
            outcome = run_replay(target, meant, rules)
        except (InputError, ConfigRefused) as error:
            raise FileError(f"{self.file}: {error}") from None
        expected = scenario.expect is not None and scenario.expect.violates
        if outcome.broken and not expected:
            ended = run_replay(target, meant, rules, new=known.in_run())
            if not ended.broken:
                pytest.xfail("known")
            raise Failed(self._failure(meant, ended))
        if outcome.unmet:
            raise Failed("\n".join(output.one_line(line) for line in outcome.unmet))
        broken = [failure.rule for failure in outcome.broken]
        if broken and not {*(expected or ())} & {*broken}:
            raise Failed(self._failure(meant, outcome))
        if expected and not broken:
            pytest.skip(f"no rule of {setting.revision}: {', '.join(expected)}")
        if not expected and not (outcome.finished and any(outcome.exercised.values())):
            raise Failed("inconclusive: the run did not finish, or no rule was exercised in it")
        if not (outcome.broken or outcome.exercised[entry.rule]):
            pytest.skip(never_exercised(entry.rule))

    def _failure(self, scenario: Scenario, outcome: Outcome) -> str:
        setting, first = self.judgement.setting, outcome.broken[0]
        rule = next(
            known for known in load(setting.system, setting.revision) if known.id == first.rule
        )
        options = replay_options(setting.target, None, STEP_LIMIT)
        command = f"schedproof replay {shlex.quote(str(self.file))}{options}"
        reported = (rule, scenario, first, str(self.file), command, outcome.session.excerpt)
        lines = (f"  {line}" for line in output.failure_lines(*reported))
        [first] = blame([first], setting.target)
        word = "ADAPTER" if first.by_adapter else "BROKEN"
        return "\n".join([f"{word} {rule.id} {rule.title}", *lines])
