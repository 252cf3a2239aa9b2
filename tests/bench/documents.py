"""The reader's table: each rule of the five documents, what checks it, on what code.

`make documents` gates real releases (eight minutes of two cores), and puts the tables into
`docs/documents.md`. A checkout of nano-vLLM or LLMServingSim is gated where its folder is given.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from schedproof.gate.judging.verdict import Verdict
from schedproof.spec.catalogue import REASONS, Rule, load
from schedproof.tests.bench.pages import DOCS, put, rows

PAGE, COMMAND = DOCS / "documents.md", "documents"


class Document(NamedTuple):
    """One of the five: how the catalogue names it as a source, and whose rules it has."""

    source: str
    system: str


DOCUMENTS = {
    "spyre": Document("Spyre scheduling page", "spyre"),
    "cheat-sheet": Document("vLLM V1 scheduler cheat-sheet", "vllm"),
    "chapter": Document("chunked-prefill chapter", "vllm"),
    "deck": Document("nano-vLLM deck", "nano_vllm"),
    "simulator": Document("LLMServingSim, continuous batching", "llmservingsim"),
}
JUDGED = {"held": "held", "violated": "broken"}


def rules_of(document: Document) -> list[Rule]:
    """The rules that the document is the source of, in its order."""
    own = [rule for rule in load(document.system) if rule.source.startswith(document.source)]
    return sorted(own, key=lambda rule: (rule.id.startswith("ALL-"), rule.id))


def table(document: Document, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each rule, by its heading in the document and its title."""
    found = [("where", "in short", "rule", "checked by", "on real code")]
    page = f"systems/{document.system.replace('_', '-')}.md"
    for rule in rules_of(document):
        where = rule.source.removeprefix(document.source).lstrip(", ") or "the whole"
        link = f"[{rule.id}]({page}#{rule.id.lower()})"
        found.append((where, rule.title, link, checked_by(rule), _on_real_code(rule, verdicts)))
    yield from rows(*found)


def checked_by(rule: Rule) -> str:
    """The engines, or the reason why there is none."""
    if rule.checked:
        return ", ".join(rule.engines)
    if not rule.stands_in:
        return rule.because
    link = " of " if rule.because == "consequence" else "; see "
    return f"{rule.because}{link}{', '.join(rule.stands_in)}"


def _on_real_code(rule: Rule, verdicts: Sequence[Verdict]) -> str:
    """What the gates say, the releases of one answer together."""
    if not rule.checked:
        return "–"
    judged = sorted(
        (JUDGED[one.status], verdict.target.version)
        for verdict in verdicts
        for one in verdict.rules
        if one.id == rule.id and one.status in JUDGED
    )
    together = (
        f"{status}: {', '.join(version for _, version in versions)}"
        for status, versions in groupby(judged, key=lambda one: one[0])
    )
    return "; ".join(together) or "not judged"


def totals(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """How many rules there are, checked how, and how many on real code."""
    judged = {one.id for each in verdicts for one in each.rules if one.status in JUDGED}
    found = [("document", "rules", "with a predicate", "of these on real code", *REASONS)]
    for document in DOCUMENTS.values():
        own = rules_of(document)
        checked = [rule for rule in own if rule.checked]
        on_code = sum(rule.id in judged for rule in checked)
        reasons = [str(sum(rule.because == reason for rule in own)) for reason in REASONS]
        counts = (str(len(own)), str(len(checked)), str(on_code))
        found.append((document.source, *counts, *reasons))
    yield from rows(*found)


def read(folder: Path) -> dict[str, list[Verdict]]:
    """The verdict files in a folder, by system."""
    found: dict[str, list[Verdict]] = {document.system: [] for document in DOCUMENTS.values()}
    for file in sorted(folder.glob("*.json")):
        verdict = msgspec.json.decode(file.read_bytes(), type=Verdict)
        found[verdict.system].append(verdict)
    return found


def main() -> int:
    """Put the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verdicts", type=Path, help="folder of verdict files (gate --json)")
    verdicts = read(parser.parse_args().verdicts)
    everything = [one for each in verdicts.values() for one in each]
    put(PAGE, COMMAND, "totals", totals(everything))
    for name, document in DOCUMENTS.items():
        put(PAGE, COMMAND, name, table(document, verdicts[document.system]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
