"""How a test of an entry is called, in whatever form it is exported."""

import re

from ...spec.catalogue import load
from ..console.output import one_line
from ..files.scenario_file import file_name
from .folder import Entry


def test_name(entry: Entry) -> str:
    """The name of an entry's test, which is that of its rule and content."""
    name = file_name(entry.scenario, entry.rule).removesuffix(".json")
    return f"test_{re.sub(r'[^A-Za-z0-9]', '_', name).lower()}"


def about(entry: Entry) -> str:
    """One line about an entry, for a docstring."""
    title = next(rule.title for rule in load(entry.scenario.system) if rule.id == entry.rule)
    found = f"; found on {entry.found_on}" if entry.found_on else ""
    line = one_line(f"{entry.rule} {title}{found}")
    return line.replace("\\", "/").replace('"', "'")[:90] + "."
