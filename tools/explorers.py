"""Do the explorer and Spin agree, and how large a question can each of them answer?

Gives both the same questions about the same model, and prints the table of
`docs/explanation/small-scopes.md`. Some questions take minutes. Takes a quarter of an hour; needs
spin and gcc:

    make tool NAME=explorers OPTIONS=--quick
"""

import argparse

from .benchmarks import spin
from .benchmarks.explorers import QUESTIONS, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for one answer")
    parser.add_argument("--quick", action="store_true", help="the first two questions only")
    options = parser.parse_args()
    if spin.MISSING:
        parser.exit(2, f"explorers.py: not found: {', '.join(spin.MISSING)}\n")
    print("| rule, revision, question | tool | verdict | states | seconds | MB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for question in QUESTIONS[: 2 if options.quick else None]:
        found = answers(question, options.seconds)
        for tool, figures in found.items():
            word = {True: "holds", False: "broken", None: "not in time"}[figures.holds]
            print(
                f"| {question.rule}, {question.revision}, {question} | {tool} | {word} "
                f"| {figures.states:,} | {figures.seconds:.1f} | {figures.memory_mb:.0f} "
                f"| {figures.seconds / found['explorer'].seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
