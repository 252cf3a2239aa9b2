"""What does each proof show, for which code, and under which assumptions?

Writes the tables of `docs/explanation/proofs.md`, except those for the rules about the volumetric
limit, which `tools/proofs.py` writes:

    make tool NAME=answers OPTIONS=--write
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from schedproof.solver.smt.obligation import RuleProof
from schedproof.solver.systems import proofs_of

from .pages import DOCS, make, rows

PAGE, TOOL = DOCS / "explanation" / "proofs.md", "tools/answers.py"


def by_proof(system: str) -> list[tuple[list[str], RuleProof]]:
    """Return the proofs for a system, each with the rules that it decides."""
    found: list[tuple[list[str], RuleProof]] = []
    for rule, proof in proofs_of(system).items():
        rules = next((rules for rules, known in found if known is proof), None)
        if rules is None:
            found.append(([rule], proof))
        else:
            rules.append(rule)
    return found


def answers(system: str) -> Iterator[str]:
    """Yield the rows of a system's table."""
    lines: list[Sequence[str]] = [
        (
            *("rules", "question, and answer in the cases that the lemmas run", "lemmas"),
            *(
                "proven of this code",
                "assumed",
                "only tested, with every other case and all that the rule says beyond the question",
            ),
        )
    ]
    for rules, proof in by_proof(system):
        lemmas = proof.obligations(proof.block)
        code = dict.fromkeys(name for lemma in lemmas for name in lemma.code)
        about = sum(bool(lemma.code) for lemma in lemmas)
        lines.append(
            (
                ", ".join(rules),
                f"{proof.question} {proof.answer}",
                f"{len(lemmas)}, {about} of code",
                ", ".join(f"`{name}`" for name in code),
                "; ".join(proof.assumes),
                proof.tested,
            )
        )
    yield from rows(*lines)


TABLES = {system: partial(answers, system) for system in ("spyre", "vllm")}


if __name__ == "__main__":
    sys.exit(make(PAGE, TOOL, TABLES, __doc__))
