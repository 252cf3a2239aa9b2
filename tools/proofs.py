"""What is proven about the volumetric check, for each release and configuration, lemma by lemma?

Writes the tables of `docs/explanation/volumetric.md` and `docs/reference/lemmas.md`. If a lemma
fails, the table shows the run that `schedproof search` finds, replayed on the model. Takes twenty
minutes on one core:

    make tool NAME=proofs OPTIONS=--write
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.obligation import Discharged, discharge
from schedproof.solver.spyre.admission_sequences import ADMITS_BY, Setting, to_scenario
from schedproof.solver.spyre.proofs_by_rule import limit_lemmas
from schedproof.solver.spyre.worst_case import fewest
from schedproof.spec.catalogue import load, select

from .pages import DOCS, make, rows

PAGE, TOOL = DOCS / "explanation" / "volumetric.md", "tools/proofs.py"
LEMMAS = DOCS / "reference" / "lemmas.md"
LIMIT, JOIN = "SPY-R07", "SPY-R47"
REQUESTS = 5


class ProofQuestion(NamedTuple):
    """A row of the table: an admission rule and its configuration."""

    admission: str
    revision: str
    formula: str | None = None
    interleave: bool = True
    pausing: bool | None = None

    @property
    def setting(self) -> Setting:
        formula = self.formula or ADMITS_BY[self.revision]
        return Setting(
            formula,
            0,
            revision=self.revision,
            interleave=self.interleave,
            pausing=bool(self.pausing),
        )

    @property
    def configuration(self) -> str:
        words = [f"interleaving {'on' if self.interleave else 'off'}"]
        if self.pausing is not None:
            words.append(f"pausing {'on' if self.pausing else 'off'}")
        return ", ".join(words)


ASKED = (
    *(
        ProofQuestion(admission, revision, None, interleave, pausing)
        for admission, revision, pausings in (
            ("`sound`", "sound", (None,)),
            ("`documented`", "documented", (None,)),
            ("2.1.1, 2.1.2", "2.1.2", (None,)),
            ("2.4.0, 2.5.2, 2.6.3", "2.5.2", (True, False)),
        )
        for pausing in pausings
        for interleave in (True, False)
    ),
    ProofQuestion("`exact`", "sound", "exact"),
    ProofQuestion("`rounded`", "sound", "rounded"),
)


def proof(rule: str, setting: Setting, block: int | None = 64) -> Iterator[tuple[str, Discharged]]:
    """Yield each lemma with the title of its group."""
    for group in limit_lemmas(rule, setting, block):
        for lemma in discharge(group.lemmas):
            yield group.title, lemma


def answer(rule: str, question: ProofQuestion) -> str:
    """Return the cell for a rule: "proven", or a run that breaks the rule."""
    setting = question.setting
    if rule == JOIN and question.pausing:
        return "does not apply"
    failed = [lemma.name for _, lemma in proof(rule, setting) if lemma.status != "proven"]
    if not failed:
        if rule == LIMIT and setting.pauses:
            return "proven (by pausing)"
        return "proven" if setting.interleave else "proven, with room for every prompt"
    began = time.monotonic()
    for found in fewest(setting, REQUESTS):
        if found.answer != "sat":
            continue
        whole = replace(setting, requests=found.requests)
        scenario = to_scenario(whole, list(found.arrivals), question.revision)
        [judged] = select(load("spyre"), [rule])
        broken = replay(ModelTarget(setting.formula), scenario, [judged]).broken
        if broken:
            spent = time.monotonic() - began
            name = f"`{failed[0]}` fails"
            return f"{name}: a run of {found.requests} requests ({spent:.1f} s)"
    return f"open: {', '.join(failed)}"


def configurations() -> Iterator[str]:
    """Yield the table of releases and configurations."""
    heads = f"no join beyond the limit ({JOIN})", f"no step beyond it ({LIMIT})"
    found: list[Sequence[str]] = [("admission", "configuration", *heads)]
    for question in ASKED:
        answers = (answer(rule, question) for rule in (JOIN, LIMIT))
        found.append((question.admission, question.configuration, *answers))
    yield from rows(*found)


def lemmas() -> Iterator[str]:
    """Yield the table of all lemmas, each with the first question that needs it."""
    found = [("lemma", "statement", "about")]
    named = set[str]()
    for question in ASKED:
        for rule in (JOIN, LIMIT):
            for group in limit_lemmas(rule, question.setting, 64):
                for lemma in group.lemmas:
                    if lemma.name not in named:
                        named.add(lemma.name)
                        about = group.title.partition(" (")[0]
                        found.append((f"`{lemma.name}`", lemma.sentence, about))
    yield from rows(*found)


TABLES = {"configurations": configurations, "lemmas": lemmas}


if __name__ == "__main__":
    sys.exit(make(PAGE, TOOL, TABLES, __doc__, {"lemmas": LEMMAS}))
