"""Writes the table of known bugs: `python tests/known_bugs_table.py > tests/KNOWN_BUGS.md`.

Bug, the mutant that brings it back, the rule that names it first, the engine, and how long that
took: seconds and runs of the `ci` profile, from the start of the search.
"""

import time

from schedproof.gate.profiles import PROFILES
from schedproof.properties.machine import Search, search
from schedproof.properties.spyre.known_bugs import KNOWN_BUGS, OUT_OF_SCOPE
from schedproof.spec.catalogue import load

RULES = load("spyre")
HEAD = """# Known bugs of Spyre's scheduler, brought back

Written by `python tests/known_bugs_table.py`; `tests/properties/test_mutants.py` holds it to the
code. Times are those of one run on two cores, without shrinking.

| bug | mutant | rule | engine | found after |
|---|---|---|---|---|"""


def found_after(mutant):
    """Seconds and runs until the mutant's rule breaks first."""
    rules = [rule for rule in RULES if rule.id == mutant.rule or not mutant.alone]
    began, runs = time.monotonic(), 0
    with mutant.planted() as target:
        for seed in range(4):
            hunt = Search(target, "spyre", mutant.revision, rules, "small", mutant.known)
            if search(hunt, PROFILES["ci"].examples, seed, 0):
                seconds = time.monotonic() - began
                assert hunt.failure[1][0].rule == mutant.rule
                return f"{seconds:.1f} s, {runs + hunt.runs_to_failure} runs"
            runs += hunt.runs
    return "NOT FOUND"


def main():
    """Print the table."""
    print(HEAD)
    for mutant in KNOWN_BUGS:
        alone = " (asked alone)" if mutant.alone else ""
        when = found_after(mutant)
        print(f"| {mutant.bug} | {mutant.name} | {mutant.rule}{alone} | hypothesis | {when} |")
    print("\nOut of scope, and why:\n")
    for bug, why in OUT_OF_SCOPE.items():
        print(f"- {bug}: {why}")


if __name__ == "__main__":
    main()
