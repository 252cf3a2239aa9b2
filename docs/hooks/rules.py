"""Replaces <!-- rules: SYSTEM --> by every rule of the catalogue: its sentence, and what checks it.

<!-- counts: SYSTEM --> is replaced by the number of rules, <!-- profiles --> by the budgets of a
gate's profiles, and <!-- shared --> by the topics that several systems have in common.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
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
SMALLEST_SECTION = 3  # rules; smaller ones share a heading
MARKER = re.compile(r"<!-- (rules|counts): (\w+) -->|<!-- (profiles|shared) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every marker on the page."""
    return MARKER.sub(_filled, markdown)


def _filled(found: re.Match[str]) -> str:
    if found[3]:
        return profiles() if found[3] == "profiles" else shared()
    return counts(found[2]) if found[1] == "counts" else rules(found[2])


def rules(system: str) -> str:
    """Return a section for each part of the documents; each of its rules is a folded block."""
    parts = []
    for title, group in sections(load(system)).items():
        parts += [f"## {title}", ""]
        for rule in group:
            parts += [*_rule(system, rule), ""]
    return "\n".join(parts)


def sections(catalogue: Sequence[Rule]) -> dict[str, list[Rule]]:
    """Return the rules by heading, in catalogue order; those of every system come last."""
    sizes = Counter(map(_section, catalogue))
    found: dict[str, list[Rule]] = {}
    for rule in sorted(catalogue, key=lambda rule: rule.id.startswith("ALL-")):
        section = _section(rule)
        document, comma, _ = section.partition(", ")
        is_small = bool(comma) and sizes[section] < SMALLEST_SECTION
        found.setdefault(f"{document}, other sections" if is_small else section, []).append(rule)
    return found


def _section(rule: Rule) -> str:
    """Return the heading for a rule: its document, and the part that it comes from."""
    if rule.id.startswith("ALL-"):
        return "Every system"
    if rule.source.startswith("release"):
        return "Releases"
    source = rule.source.replace("LLMServingSim, continuous batching", "Continuous batching")
    section = re.sub(r", \d+$", "", re.split("[:;]", source)[0])
    return re.sub(r"(chapter \d+).*", r"\1", section)


def counts(system: str) -> str:
    """Return a sentence with the number of rules, and how many of them are checked."""
    catalogue = load(system)
    checked = sum(rule.checked for rule in catalogue)
    shared = sum(rule.id.startswith("ALL-") for rule in catalogue)
    return (
        f"This catalogue has {len(catalogue)} rules, {shared} of which (ALL-…) apply to every "
        f"system. Predicates check {checked} of them. Each of the others says why it has no "
        "predicate, and which rule you can look at instead."
    )


def shared() -> str:
    """Return the topics that systems share as a table: their rules side by side, and how they
    differ."""
    rows = []
    for topic in topics():
        cells = [
            "<br>".join(f"[{rule_id}]({PAGES[system]}#{rule_id.lower()})" for rule_id in ids) or "–"
            for system, ids in ((name, topic.rules.get(name, ())) for name in PAGES)
        ]
        rows.append(f"| {topic.title} | {' | '.join(cells)} | {topic.differs} |")
    head = f"| topic | {' | '.join(PAGES)} | where they differ |"
    return "\n".join([head, f"|---|{'---|' * (len(PAGES) + 1)}", *rows])


def profiles() -> str:
    """Return the budgets of a gate as a table."""
    heads = list(next(iter(PROFILES.values()))._asdict())
    rows = [
        f"| `{name}` | {' | '.join(str(value) for value in profile)} |"
        for name, profile in PROFILES.items()
    ]
    return "\n".join(
        [
            f"| profile | {' | '.join(head.replace('_', ' ') for head in heads)} |",
            f"|---|{'---|' * len(heads)}",
            *rows,
        ]
    )


def _state(rule: Rule) -> str:
    return "" if rule.checked else ", planned" if rule.planned else ", not checked"


def _rule(system: str, rule: Rule) -> Iterator[str]:
    yield '<details class="rule" markdown="1">'
    yield (
        f"<summary><code>{rule.id}</code> {escape(rule.title)} "
        f"<small>{rule.kind}{_state(rule)}</small></summary>"
    )
    yield ""
    yield f'<a id="{rule.id.lower()}"></a>{rule.statement}'
    yield ""
    yield f"- Source: {rule.source}"
    if rule.revisions != ("*",):
        yield f"- Revisions: {', '.join(rule.revisions)}"
    if rule.planned:
        yield f"- Planned: {rule.planned}"
    elif rule.unchecked:
        yield f"- Not checked ({rule.reason}): {rule.unchecked}"
        if rule.stands_in:
            links = ", ".join(f"[{id_}](#{id_.lower()})" for id_ in rule.stands_in)
            yield f"- See instead: {links}"
    else:
        yield from _checks(system, rule)
    for change in rule.changes:
        yield f"- Since {change.since}: {change.statement} ({change.source}; {change.change})"
    for divergence in rule.divergences:
        link = f" ({divergence.change})" * bool(divergence.change)
        yield f"- Known divergence of {divergence.releases}: {divergence.statement}{link}"
    predicate = predicates_of(system).get(rule.id)
    if rule.checked and predicate is None:
        yield "- Checked in `properties/checking/session.py`, which calls the target"
    if predicate is not None:
        yield ""
        yield from _formula(predicate)
    yield ""
    yield "</details>"


def _checks(system: str, rule: Rule) -> Iterator[str]:
    yield f"- Exercised when: {rule.witness}"
    yield f"- Fields that a target must show: {', '.join(rule.needs) or 'kind and scheduled'}"
    yield f"- Engines that search for it: {', '.join(rule.engines)}"
    faults = [fault.does for fault in mutants_of(system) if fault.rule == rule.id]
    yield f"- Planted faults that it catches: {'; '.join(faults)}"


def _formula(predicate: Predicate) -> Iterator[str]:
    """Yield the predicate itself, which is the formula that is checked."""
    function: Any = inspect.unwrap(predicate.broken)
    function = getattr(function, "func", function)  # of a partial
    source = inspect.getsource(function)
    path = Path(inspect.getsourcefile(function) or "").resolve()
    name = getattr(function, "__name__", "")
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    yield f"The predicate, `{name}` in `{where}`:"
    yield ""
    yield f"```python\n{source.rstrip()}\n```"
