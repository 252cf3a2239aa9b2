"""Which rules do the five documents state, what checks each rule, and on which real code?

Gates real releases, and writes the tables of `docs/reference/documents.md`. The default releases
take eight minutes on two cores. Verdicts that an earlier call left in the folder are used again. A
release without an installable package needs the folder of its checkout:

    make tool NAME=documents
    make tool NAME=documents OPTIONS="nano-vllm:DIR llmservingsim:DIR"
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from schedproof.gate.judging.verdict import Verdict
from schedproof.spec.catalogue import REASONS, Rule, load

from .pages import DOCS, put, rows

PAGE, TOOL = DOCS / "reference" / "documents.md", "tools/documents.py"


class Document(NamedTuple):
    """One of the five documents: the name under which the catalogue cites it, and the system
    that it describes."""

    source: str
    system: str


DOCUMENTS = {
    "spyre": Document("Spyre scheduling page", "spyre"),
    "cheat-sheet": Document("vLLM V1 scheduler cheat-sheet", "vllm"),
    "chapter": Document("chunked-prefill chapter", "vllm"),
    "deck": Document("nano-vLLM deck", "nano_vllm"),
    "simulator": Document("LLMServingSim, continuous batching", "llmservingsim"),
}
RELEASES = (
    *("sendnn-inference==2.1.2", "sendnn-inference==2.6.3"),
    *("vllm==0.19.1", "vllm==0.28.0", "vllm==0.33.0"),
)
JUDGED = {"held": "held", "violated": "broken"}


def rules_of(document: Document) -> list[Rule]:
    """Return the rules whose source is the document, in the document's order."""
    own = [rule for rule in load(document.system) if rule.source.startswith(document.source)]
    return sorted(own, key=lambda rule: (rule.id.startswith("ALL-"), rule.id))


def table(document: Document, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a table with a row for each rule: its place in the document, its title, and what
    checks it."""
    found = [("where", "in short", "rule", "checked by", "on real code")]
    page = f"rules/{document.system.replace('_', '-')}.md"
    for rule in rules_of(document):
        where = rule.source.removeprefix(document.source).lstrip(", ") or "the whole"
        link = f"[{rule.id}]({page}#{rule.id.lower()})"
        found.append((where, rule.title, link, checked_by(rule), _on_real_code(rule, verdicts)))
    yield from rows(*found)


def checked_by(rule: Rule) -> str:
    """Return the engines that check the rule, or the reason why no engine does."""
    if rule.checked:
        return ", ".join(rule.engines)
    if not rule.stands_in:
        return rule.reason
    link = " of " if rule.reason == "consequence" else "; see "
    return f"{rule.reason}{link}{', '.join(rule.stands_in)}"


def _on_real_code(rule: Rule, verdicts: Sequence[Verdict]) -> str:
    """Describe the gates' verdicts on the rule. Releases with the same verdict are listed
    together."""
    if not rule.checked:
        return "–"
    judged = sorted(
        (JUDGED[judged_rule.status], verdict.target.version)
        for verdict in verdicts
        for judged_rule in verdict.rules
        if judged_rule.id == rule.id and judged_rule.status in JUDGED
    )
    together = (
        f"{status}: {', '.join(version for _, version in versions)}"
        for status, versions in groupby(judged, key=lambda row: row[0])
    )
    return "; ".join(together) or "not judged"


def totals(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a table of the number of rules that each document states, how many of them have a
    predicate, and how many were judged on real code."""
    judged = {rule.id for each in verdicts for rule in each.rules if rule.status in JUDGED}
    found: list[Sequence[str]] = [
        ("document", "rules", "with a predicate", "of these on real code", *REASONS)
    ]
    for document in DOCUMENTS.values():
        own = rules_of(document)
        checked = [rule for rule in own if rule.checked]
        on_code = sum(rule.id in judged for rule in checked)
        reasons = [str(sum(rule.reason == reason for rule in own)) for reason in REASONS]
        counts = (str(len(own)), str(len(checked)), str(on_code))
        found.append((document.source, *counts, *reasons))
    yield from rows(*found)


def read(folder: Path) -> dict[str, list[Verdict]]:
    """Read the verdict files in a folder. Return the verdicts by system."""
    found: dict[str, list[Verdict]] = {document.system: [] for document in DOCUMENTS.values()}
    for file in sorted(folder.glob("*.json")):
        verdict = msgspec.json.decode(file.read_bytes(), type=Verdict)
        found[verdict.system].append(verdict)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--verdicts", type=Path, default=Path(".venv/verdicts"))
    options = parser.parse_args()
    for release in options.releases:
        gate(release, options.verdicts)
    verdicts = read(options.verdicts)
    put(PAGE, f"{TOOL}: totals", totals([rule for each in verdicts.values() for rule in each]))
    for name, document in DOCUMENTS.items():
        put(PAGE, f"{TOOL}: {name}", table(document, verdicts[document.system]))
    return 0


def gate(release: str, folder: Path) -> None:
    """Judge a release and write its verdict to the folder."""
    file = folder / f"{Path(release).name}.json"
    words = [*("gate", release, "--jobs", "2"), "--out", str(folder / "runs"), "--json", str(file)]
    code = subprocess.run([sys.executable, "-m", "schedproof", *words], check=False).returncode
    if code not in (0, 1):
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
