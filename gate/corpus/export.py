"""`schedproof corpus export`: a corpus in one file that stands by itself."""

import json
import pprint
from collections.abc import Sequence
from typing import Any

from ..files.scenario_file import FileError, scenario_json
from . import upstream_export
from .folder import Entry
from .pytest_export import about, test_name

KINDS = ("pytest", "json", "upstream")
PYTEST_HEAD = '''\
"""Regression scenarios of a scheduler, exported by `schedproof corpus export --as pytest`.

Needs pytest and schedproof. What is tested: TARGET, or the environment variable SCHEDPROOF_TARGET
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


def exported(kind: str, there: Sequence[Entry], target: str | None = None) -> str:
    """The text of the file; the entries' rules are of the catalogue. `target`: what a test for
    schedproof tests, by default the target that the entries were found on.

    Raises:
        FileError: an entry that this form has no way to say.
    """
    if kind == "json":
        return as_json(there)
    if kind == "pytest":
        return as_pytest(there, target or found_on(there))
    return upstream_export.as_test_file(there)


def as_json(there: Sequence[Entry]) -> str:
    """An array of scenarios."""
    rows = ",\n".join(scenario_json(one.scenario).rstrip() for one in there)
    return f"[\n{rows}\n]\n"


def as_pytest(there: Sequence[Entry], target: str) -> str:
    """A test file with a function for each entry, which needs schedproof."""
    head = PYTEST_HEAD.replace("{target}", json.dumps(target))
    return head + "".join(_test(entry) for entry in there)


def found_on(there: Sequence[Entry]) -> str:
    """The one target that the entries were found on.

    Raises:
        FileError: several, or none is known.
    """
    named = sorted({entry.origin.found_on.target for entry in there} - {""})
    if len(named) != 1:
        known = (
            f"found on {', '.join(named)}" if named else "which do not say what they were found on"
        )
        raise FileError(f"--as pytest: entries {known}; valid: with --target")
    return named[0]


def _test(entry: Entry) -> str:
    # What a file says is printed as Python prints it: nothing in it can leave its quotes.
    data: dict[str, Any] = json.loads(scenario_json(entry.scenario))
    shown = pprint.pformat(data, width=92, sort_dicts=False)
    indented = "\n".join(f"        {line}" for line in shown.splitlines())
    return (
        f"\n\ndef {test_name(entry)}(target):\n"
        f'    """{about(entry)}"""\n'
        f"    scenario = (\n{indented}\n    )\n"
        f"    why_not = check(scenario, target)\n"
        f"    assert not why_not, why_not\n"
    )
