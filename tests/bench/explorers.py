"""The explorer and Spin, the questions that take minutes included: the table of the README.

    python tests/bench/explorers.py [--seconds N] [--quick]

`schedproof bench --only explorers` has those that take less. Needs spin and gcc.
"""

import argparse

from schedproof.benchmarks import spin
from schedproof.benchmarks.explorers import QUESTIONS, answers


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for one answer")
    parser.add_argument("--quick", action="store_true", help="the first two questions only")
    options = parser.parse_args()
    if spin.MISSING:
        parser.exit(2, f"explorers.py: not found: {', '.join(spin.MISSING)}\n")
    print("| rule, revision, question | tool | verdict | states | seconds | MB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for asked in QUESTIONS[: 2 if options.quick else None]:
        found = answers(asked, options.seconds)
        for tool, one in found.items():
            word = {True: "holds", False: "broken", None: "not in time"}[one.holds]
            print(
                f"| {asked.rule}, {asked.revision}, {asked} | {tool} | {word} | {one.states:,} "
                f"| {one.seconds:.1f} | {one.memory_mb:.0f} "
                f"| {one.seconds / found['explorer'].seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
