"""`schedproof corpus export`: write a corpus as one self-contained file.

Tests for a target's own repository do not depend on schedproof. The template of each system,
`templates/<system>.jinja`, calls the scheduler itself. It asserts in every step the rules that it
can express in the target's own vocabulary. For any other rule, the test contains a table with the
steps of the reference model, and the target must take these steps.
"""

import json
import pprint
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.observation import Step
from ...model.scenario import TO_CONNECTOR, Request, Scenario
from ...model.systems import revisions_of
from ...model.target import ModelTarget
from ...properties.checking.replay import Outcome, replay
from ...properties.rules.registry import applies
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..console.output import one_line
from ..files.scenario_file import FileError, file_name, scenario_json
from .folder import Entry
from .replay import rules_for

KINDS = ("pytest", "json", "upstream")
TEMPLATES = Path(__file__).with_name("templates")
MAX_ROWS = 2_000
PYTEST_HEAD = '''\
"""Regression scenarios of a scheduler, exported by `schedproof corpus export --as pytest`.

Needs pytest and schedproof. Tests TARGET, or what the environment variable SCHEDPROOF_TARGET names
(model, MODULE:FACTORY, 'cmd:COMMAND LINE', or a release such as vllm==0.28.0).
"""

import os

import pytest

from schedproof.gate.corpus.replay import check, opened_target

TARGET = os.environ.get("SCHEDPROOF_TARGET", {target})


@pytest.fixture(scope="module")
def target():
    with opened_target(TARGET) as opened:
        yield opened
'''


def export_text(kind: str, entries: Sequence[Entry], target: str | None = None) -> str:
    """Return the content of a file of this kind. The tests run on `target`, by default the target
    on which the entries were found. Raise FileError if the file cannot express an entry."""
    if kind == "json":
        rows = ",\n".join(scenario_json(entry.scenario).rstrip() for entry in entries)
        return f"[\n{rows}\n]\n"
    if kind == "pytest":
        head = PYTEST_HEAD.replace("{target}", _literal(target or common_target(entries)))
        return head + "".join(_pytest_test(entry) for entry in entries)
    return as_repository_tests(entries)


def expressible(kind: str, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Return the entries that a file of this kind can express, and the reasons why it cannot
    express the others."""
    if kind != "upstream":
        return [*entries], []
    able: list[Entry] = []
    errors: list[FileError] = []
    for entry in entries:
        try:
            as_repository_tests([entry])
            able.append(entry)
        except FileError as error:
            errors.append(error)
    if not able:
        raise errors[0]
    return able, [str(error) for error in errors]


def common_target(entries: Sequence[Entry]) -> str:
    """Return the target on which all entries were found. Raise FileError if there are several."""
    targets = sorted({entry.origin.found_on.target for entry in entries} - {""})
    if len(targets) != 1:
        known = (
            f"were found on {', '.join(targets)}"
            if targets
            else "do not name the target on which they were found"
        )
        raise FileError(f"--as pytest: the entries {known}; valid: name one with --target")
    return targets[0]


def as_repository_tests(entries: Sequence[Entry]) -> str:
    systems = sorted({entry.scenario.system for entry in entries})
    if len(systems) > 1:
        raise FileError(
            f"--as upstream: the entries belong to {', '.join(systems)}; valid: one system, chosen "
            "with --rule"
        )
    valid = [system for system in SYSTEMS if (TEMPLATES / f"{system}.jinja").exists()]
    if systems[0] not in valid:
        raise FileError(
            f"--as upstream: {systems[0]} has no template for tests; valid: {', '.join(valid)}"
        )
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # the output is Python, not HTML; text from files is quoted by `repr`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    tests = {test_name(entry): RepositoryTest(entry) for entry in entries}
    return environment.get_template(f"{systems[0]}.jinja").render(tests=tests.values())


class Table(NamedTuple):
    """The steps that a revision's model takes. Each step is written as the arguments of a call to
    `dict`."""

    revision: str
    rows: list[str]


class RepositoryTest:
    """An entry in the form that templates use. `table` is needed only for rules that a template
    cannot assert."""

    def __init__(self, entry: Entry) -> None:
        expect = entry.scenario.expect
        self._entry = entry
        self.rule = entry.rule
        self.name = test_name(entry)
        self.about = about(entry)
        self.is_known_to_fail = bool(expect and expect.violates)

    def config(self, unsayable: Container[str]) -> str:
        config, events = self._entry.scenario.config, self._entry.scenario.events
        if events:
            raise FileError(
                f"{self._entry.path}: $.events[0].kind: {events[0].kind}: these tests cannot "
                "express resets and pauses; remove the events, or choose other rules with --rule"
            )
        for key in config:
            if key in unsayable:
                raise FileError(
                    f"{self._entry.path}: $.config.{key}: {json.dumps(config[key])}: these "
                    "tests cannot express it; remove the key, or choose other rules with --rule"
                )
        return _arguments(config)

    def requests(self) -> Iterator[str]:
        return (_arguments(_request(request)) for request in self._entry.scenario.requests)

    def table(self) -> Table:
        """Return the steps of the model of the scenario's revision. If this model breaks a rule in
        some step, take the steps up to that step from a model of another revision that breaks no
        rule.
        """
        scenario = self._entry.scenario
        own = scenario.revision or revisions_of(scenario.system)[0]
        last: int | None = None
        others = (revision for revision in revisions_of(scenario.system) if revision != own)
        for revision in (own, *others):
            outcome, steps = _replay_model(scenario, self.rule, revision)
            if outcome is None:
                continue
            if not outcome.broken and outcome.finished:
                count = outcome.steps if last is None else min(last, outcome.steps)
                return Table(revision, _rows(steps[:count]))
            if revision == own and outcome.broken:
                last = outcome.broken[0].step + 1
        raise FileError(
            f"{self._entry.path}: every model of {scenario.system} breaks a rule in it, and "
            f"{self.rule} cannot be asserted in the target's own vocabulary; leave it out with "
            f"--rule"
        )


def _literal(text: str) -> str:
    # JSON escapes characters beyond U+FFFF as two halves, which Python would read as two
    # characters.
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)


def test_name(entry: Entry) -> str:
    name = file_name(entry.scenario, entry.rule).removesuffix(".json")
    return f"test_{re.sub(r'[^A-Za-z0-9]', '_', name).lower()}"


def about(entry: Entry) -> str:
    title = next(rule.title for rule in load(entry.scenario.system) if rule.id == entry.rule)
    where = f"; found on {entry.found_on}" if entry.found_on else ""
    line = one_line(f"{entry.rule} {title}{where}")
    return line.replace("\\", "/").replace('"', "'")[:90] + "."


def _pytest_test(entry: Entry) -> str:
    # Write text from a file as a Python literal, so that it cannot break out of its quotes.
    data: dict[str, Any] = json.loads(scenario_json(entry.scenario))
    printed = pprint.pformat(data, width=92, sort_dicts=False)
    indented = "\n".join(f"        {line}" for line in printed.splitlines())
    return (
        f"\n\ndef {test_name(entry)}(target):\n"
        f'    """{about(entry)}"""\n'
        f"    scenario = (\n{indented}\n    )\n"
        f"    if why_not := check(scenario, target):\n"
        f"        pytest.fail(why_not, pytrace=False)\n"
    )


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _request(request: Request) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": request.id,
        "add_step": request.arrival,
        "prompt": [tuple(segment) for segment in request.prompt],
        "max_tokens": request.max_tokens,
    }
    if request.tokens_to_emit != request.max_tokens:
        values["ends_after"] = request.tokens_to_emit
    if request.priority:
        values["priority"] = request.priority
    for key, default in TO_CONNECTOR.items():
        if getattr(request, key) != default:
            values[key] = getattr(request, key)
    if request.abort_at is not None:
        values["abort_step"] = request.abort_at
    if request.abort_inside:
        values["abort_inside"] = True
    return values


def _replay_model(
    scenario: Scenario, rule: str, revision: str
) -> tuple[Outcome | None, list[Step]]:
    # If the rule applies to the revision, no other rule judges the run.
    variant = replace(scenario, revision=revision, expect=None)
    catalogue = load(scenario.system, revision)
    rules = [known for known in catalogue if known.id == rule and applies(known, revision)]
    steps: list[Step] = []
    try:
        outcome = replay(
            *(ModelTarget(), variant, rules or rules_for(variant)),
            lambda _, step: steps.append(step),
        )
    except (InputError, ConfigRefused):  # the scenario uses an option that this revision lacks
        return None, []
    return outcome, steps


def _rows(steps: Sequence[Step]) -> list[str]:
    rows: list[str] = []
    following: dict[str, Any] | None = None
    for number, step in enumerate(steps, 1):
        row = _row(number, step)
        if row != following or number == len(steps):
            rows.append(_arguments(row))
        following = row | {key: row[key] + 1 for key in ("step", "tkv") if key in row}
    if len(rows) > MAX_ROWS:
        raise FileError(f"--as upstream: a table of {len(rows)} steps; valid: at most {MAX_ROWS}")
    return rows


def _row(number: int, step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": number,
        "kind": step.kind,
        "scheduled": dict(step.scheduled),
    }
    if step.kind == "decode" and step.tkv is not None:
        row["tkv"] = step.tkv
    return row | {
        "waiting": list(step.waiting or ()),
        "running": list(step.running or ()),
        "finished_requests": sorted(step.finished or {}),
    }
