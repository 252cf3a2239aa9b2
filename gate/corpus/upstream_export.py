"""A corpus as tests of the target's own repository, which know nothing of schedproof.

Where a rule can be said in a line of the target's own terms, the test asserts it in every step.
Otherwise it has a table of steps: what the reference model does, which is what the target would
have done.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.observation import Step
from ...model.scenario import TO_CONNECTOR, Request, Scenario
from ...model.systems import revisions_of
from ...model.target import ModelTarget
from ...properties.checking.replay import Outcome
from ...properties.checking.replay import replay as replay_steps
from ...properties.rules.registry import applies
from ...spec.catalogue import load
from ..files.scenario_file import FileError
from .folder import Entry
from .pytest_export import about, test_name
from .replay import rules_for
from .upstream_nano import NANO_HEAD
from .upstream_spyre import SPYRE_HEAD
from .upstream_vllm import VLLM_HEAD

HEADS = {"nano_vllm": NANO_HEAD, "vllm": VLLM_HEAD, "spyre": SPYRE_HEAD}
# Rules that the heads of the test files say in the target's own terms, by the name that they give
# to it there.
CONDITIONS = {
    "ALL-R01": "nothing_raises",
    "SPY-R07": "volume_within_limit",
    "NAN-R40": "slots_within_limit",
}
VLLM_CONDITIONS = {"ALL-R10": "gets_on"}
MAX_ROWS = 2_000
UNSAYABLE = ("num_speculative_tokens", "num_lookahead_tokens", "encoder_cache_size")


class Table(NamedTuple):
    """The steps of a reference model.

    Attributes:
        revision: which model.
        rows: number of the step, from 1, and the step.
        last: the step after which nothing is compared.
    """

    revision: str
    rows: list[tuple[int, Step]]
    last: int


def as_test_file(there: Sequence[Entry]) -> str:
    """A test file with a function for each entry.

    Raises:
        FileError: entries of several systems, of one without such tests, or one that can be told
            neither by a condition nor by the steps of a model.
    """
    systems = sorted({one.scenario.system for one in there})
    if len(systems) > 1:
        reported = ", ".join(systems)
        raise FileError(
            f"--as upstream: entries of {reported}; valid: one system, chosen with --rule"
        )
    if systems[0] not in HEADS:
        valid = ", ".join(HEADS)
        raise FileError(
            f"--as upstream: {systems[0]} has no tests to write such ones for; valid: {valid}"
        )
    tests = {test_name(one): _test(one) for one in there}
    return HEADS[systems[0]] + "".join(tests.values())


def _test(entry: Entry) -> str:
    """One test function."""
    scenario = entry.scenario
    _check_sayable(entry)
    config = ", ".join(f"{key}={value!r}" for key, value in scenario.config.items())
    requests = "\n".join(f"            dict({_request(one)})," for one in scenario.requests)
    known = bool(scenario.expect and scenario.expect.violates)
    mark = f'@pytest.mark.xfail(strict=True, reason="known: {entry.rule}")\n' * known
    own = VLLM_CONDITIONS if scenario.system == "vllm" else {}
    always = (CONDITIONS | own).get(entry.rule)
    checked = f"        always={always},\n" if always else _checked_steps(_reference(entry))
    return (
        f"\n\n{mark}def {test_name(entry)}():\n"
        f'    """{about(entry)}"""\n'
        f"    check_scheduler_steps(\n"
        f"        config=dict({config}),\n"
        f"        requests=[\n{requests}\n        ],\n"
        f"{checked}    )\n"
    )


def _check_sayable(entry: Entry) -> None:
    """nano-vLLM has no abort, and the loop of the test files has no drafts; what a test cannot say
    must be left out."""
    for key in UNSAYABLE:
        if key in entry.scenario.config:
            value = json.dumps(entry.scenario.config[key])
            raise FileError(
                f"{entry.path}: $.config.{key}: {value}: the loop of these tests has no drafts; "
                "valid: absent; --rule leaves it out"
            )
    aborts = any(one.abort_at is not None for one in entry.scenario.requests)
    if aborts and entry.scenario.system == "nano_vllm":
        raise FileError(f"{entry.path}: $.requests: nano-vLLM has no abort; --rule leaves it out")


def _request(one: Request) -> str:
    """The arguments of a request."""
    reported: dict[str, Any] = {
        "id": one.id,
        "add_step": one.arrival,
        "prompt": [tuple(segment) for segment in one.prompt],
        "max_tokens": one.max_tokens,
    }
    if one.tokens_to_emit != one.max_tokens:
        reported["ends_after"] = one.tokens_to_emit
    if one.priority:
        reported["priority"] = one.priority
    for key, nothing in TO_CONNECTOR.items():
        if getattr(one, key) != nothing:
            reported[key] = getattr(one, key)
    if one.abort_at is not None:
        reported["abort_step"] = one.abort_at
    if one.abort_inside:
        reported["abort_inside"] = True
    return ", ".join(f"{key}={value!r}" for key, value in reported.items())


def _reference(entry: Entry) -> Table:
    """The steps of the first model that breaks no rule in this scenario: that of its own revision,
    or another one, up to the step that breaks the rule in its own.

    Raises:
        FileError: every model breaks one.
    """
    scenario = entry.scenario
    own = scenario.revision or revisions_of(scenario.system)[0]
    last: int | None = None
    for revision in (own, *(one for one in revisions_of(scenario.system) if one != own)):
        outcome, rows = _steps(scenario, entry.rule, revision)
        if outcome is None:
            continue
        if not outcome.broken and outcome.finished:
            steps = outcome.steps if last is None else min(last, outcome.steps)
            return Table(revision, [row for row in rows if row[0] <= steps], steps)
        if revision == own and outcome.broken:
            last = outcome.broken[0].step + 1
    raise FileError(
        f"{entry.path}: every model of {scenario.system} breaks a rule in it, and {entry.rule} has "
        "no words in the target's own terms; --rule leaves it out"
    )


def _steps(
    scenario: Scenario, rule: str, revision: str
) -> tuple[Outcome | None, list[tuple[int, Step]]]:
    """What the model of a revision does, and whether it breaks this rule."""
    meant = replace(scenario, revision=revision, expect=None)
    rules = [one for one in load(scenario.system) if one.id == rule and applies(one, revision)]
    rules = rules or rules_for(meant)
    rows: list[tuple[int, Step]] = []
    try:
        outcome = replay_steps(
            ModelTarget(), meant, rules, lambda number, step: rows.append((number + 1, step))
        )
    except (InputError, ConfigRefused):  # an option that this revision does not have
        return None, []
    return outcome, rows


def _checked_steps(table: Table) -> str:
    """The table as Python, one line a row that is more than a decode that changes nothing."""
    lines = [f"        # What the scheduler of revision {table.revision} does.\n"]
    lines.append("        checked_steps=[\n")
    before: dict[str, Any] | None = None
    written = 0
    for number, step in table.rows:
        row = _row(number, step)
        if row == _next(before) and number != table.last:
            before = row
            continue
        shown = ", ".join(f"{key}={value!r}" for key, value in row.items())
        lines.append(f"            dict({shown}),\n")
        written += 1
        before = row
    if written > MAX_ROWS:
        raise FileError(f"--as upstream: a table of {written} steps; valid: {MAX_ROWS} at most")
    return "".join(lines) + "        ],\n"


def _row(number: int, step: Step) -> dict[str, Any]:
    """What is compared of a step."""
    row: dict[str, Any] = {"step": number, "kind": step.kind}
    row["scheduled"] = dict(step.scheduled)
    if step.kind == "decode" and step.tkv is not None:
        row["tkv"] = step.tkv
    row["waiting"] = list(step.waiting or ())
    row["running"] = list(step.running or ())
    row["finished_requests"] = sorted(step.finished or {})
    return row


def _next(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """The row that follows where nothing happens: the same, one step and one token further."""
    if row is None:
        return None
    return row | {"step": row["step"] + 1} | ({"tkv": row["tkv"] + 1} if "tkv" in row else {})
