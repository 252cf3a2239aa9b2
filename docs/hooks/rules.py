"""<!-- rules: SYSTEM --> becomes every rule of the catalogue: what it says, and what checks it.

<!-- counts: SYSTEM --> becomes how many there are, <!-- profiles --> what a gate's profiles spend,
<!-- shared --> what systems have in common.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from schedproof.gate.judging.profiles import PROFILES
from schedproof.properties.rules.predicate import Predicate
from schedproof.properties.rules.registry import predicates_of
from schedproof.spec.catalogue import Rule, load, topics
from schedproof.tests.mutants.faults import mutants_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "spyre": "spyre.md",
    "vllm": "vllm.md",
    "nano_vllm": "nano-vllm.md",
    "llmservingsim": "llmservingsim.md",
    "generic": "generic.md",
}
MARKER = re.compile(r"<!-- (rules|counts): (\w+) -->|<!-- (profiles|shared) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what the page asks for."""
    return MARKER.sub(_filled, markdown)


def _filled(found: re.Match[str]) -> str:
    if found[3]:
        return profiles() if found[3] == "profiles" else shared()
    return counts(found[2]) if found[1] == "counts" else rules(found[2])


def rules(system: str) -> str:
    """An overview, then each rule in catalogue order: those with a predicate first."""
    catalogue = load(system)
    rows = [
        f"| [{rule.id}](#{rule.id.lower()}) | {rule.title} | {rule.kind} | {_state(rule)} |"
        for rule in catalogue
    ]
    parts = ["| rule | title | kind | state |", "|---|---|---|---|", *rows, ""]
    checked = [rule for rule in catalogue if rule.checked]
    parts += ["## Rules that are checked", ""]
    for rule in checked:
        parts += [*_rule(system, rule), ""]
    parts += ["## Rules without a predicate of their own", ""]
    for rule in catalogue:
        if not rule.checked:
            parts += [*_rule(system, rule), ""]
    return "\n".join(parts)


def counts(system: str) -> str:
    """How many rules there are, and how many are checked."""
    catalogue = load(system)
    checked = sum(rule.checked for rule in catalogue)
    shared = sum(rule.id.startswith("ALL-") for rule in catalogue)
    return (
        f"{len(catalogue)} rules, {shared} of them of every system (ALL-…); {checked} are checked. "
        "Of each of the others the reason is given, and what stands in for it."
    )


def shared() -> str:
    """Topics that systems share: the rules side by side, and where they differ."""
    rows = []
    for topic in topics():
        cells = [
            "<br>".join(f"[{one}](../reference/rules/{PAGES[system]}#{one.lower()})" for one in ids)
            or "–"
            for system, ids in ((name, topic.rules.get(name, ())) for name in PAGES)
        ]
        rows.append(f"| {topic.title} | {' | '.join(cells)} | {topic.differs} |")
    head = f"| topic | {' | '.join(PAGES)} | where they differ |"
    return "\n".join([head, f"|---|{'---|' * (len(PAGES) + 1)}", *rows])


def profiles() -> str:
    """The budgets of a gate."""
    heads = list(next(iter(PROFILES.values()))._asdict())
    rows = [
        f"| `{name}` | {' | '.join(str(value) for value in one)} |"
        for name, one in PROFILES.items()
    ]
    return "\n".join(
        [
            f"| profile | {' | '.join(head.replace('_', ' ') for head in heads)} |",
            f"|---|{'---|' * len(heads)}",
            *rows,
        ]
    )


def _state(rule: Rule) -> str:
    return "checked" if rule.checked else "planned" if rule.planned else "not checked"


def _rule(system: str, rule: Rule) -> Iterator[str]:
    yield f"### {rule.id} {rule.title} {{ #{rule.id.lower()} }}"
    yield ""
    yield rule.says
    yield ""
    yield f"- Source: {rule.source}"
    where = "every revision" if rule.revisions == ("*",) else ", ".join(rule.revisions)
    yield f"- {rule.kind.capitalize()}, of {where}"
    if rule.planned:
        yield f"- Planned: {rule.planned}"
    elif rule.unchecked:
        yield f"- Not checked, {rule.because}: {rule.unchecked}"
        if rule.stands_in:
            links = ", ".join(f"[{one}](#{one.lower()})" for one in rule.stands_in)
            yield f"- In its place: {links}"
    else:
        yield from _checks(system, rule)
    for change in rule.changes:
        yield f"- From {change.since} on: {change.says} ({change.source}; {change.change})"
    for one in rule.divergences:
        yield f"- Otherwise in {one.releases}: {one.says}" + f" ({one.change})" * bool(one.change)
    predicate = predicates_of(system).get(rule.id)
    if rule.checked and predicate is None:
        yield "- Checked in properties/checking/session.py, which calls the target"
    if predicate is not None:
        yield ""
        yield from _formula(predicate)


def _checks(system: str, rule: Rule) -> Iterator[str]:
    yield f"- Exercised: {rule.witness}"
    yield f"- Needs: {', '.join(rule.needs) or 'nothing beyond kind and scheduled'}"
    yield f"- Engines: {', '.join(rule.engines)}"
    faults = [fault.does for fault in mutants_of(system) if fault.rule == rule.id]
    yield f"- Planted faults that it finds: {'; '.join(faults)}"


def _formula(predicate: Predicate) -> Iterator[str]:
    """The predicate itself, which is the formula that is checked."""
    function: Any = inspect.unwrap(predicate.broken)
    function = getattr(function, "func", function)  # of a partial
    source = inspect.getsource(function)
    path = Path(inspect.getsourcefile(function) or "").resolve()
    name = getattr(function, "__name__", "")
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    yield f'??? note "Formula: `{name}` in {where}"'
    yield ""
    yield indent(f"```python\n{source.rstrip()}\n```", "    ")
