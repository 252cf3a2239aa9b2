"""Writes the table of known bugs: `python tests/known_bugs_table.py > tests/KNOWN_BUGS.md`.

Bug, the mutant that brings it back, the rule that names it, and how long each engine takes: what
`schedproof selfcheck` says of it, from the start of a search.
"""

from schedproof.gate.selfcheck.suite import kill, mutants
from schedproof.properties.mutants.systems import out_of_scope
from schedproof.spec.systems import SYSTEMS

HEAD = """# Known bugs of the schedulers of Spyre, vLLM, nano-vLLM and LLMServingSim, brought back

Written by `python tests/known_bugs_table.py`; `tests/properties/mutants/test_mutant.py` holds it
to the code. Times are those of one run on one core, without shrinking.

| bug | mutant | rule | hypothesis | explorer |
|---|---|---|---|---|"""
NOT_ASKED = "not asked: the fault is in a target around the model"


def reported(killed, engine):
    """What one engine says of a bug."""
    answer = next((one for one in killed.answers if one.engine == engine), None)
    if answer is None:
        return NOT_ASKED
    return f"{answer.seconds:.1f} s, {answer.how}" if answer.found else f"no: {answer.how}"


def main():
    """Print the table."""
    print(HEAD)
    for number, mutant in enumerate(mutants()):
        if mutant.bug:
            killed = kill(number)
            assert killed.fault is None, killed.fault
            alone = " (asked alone)" if mutant.alone else ""
            engines = " | ".join(reported(killed, engine) for engine in ("hypothesis", "explorer"))
            print(f"| {mutant.bug} | {mutant.name} | {mutant.rule}{alone} | {engines} |")
    print("\nOut of scope, and why:\n")
    for bug, why in (row for system in SYSTEMS for row in out_of_scope(system).items()):
        print(f"- {bug}: {why}")


if __name__ == "__main__":
    main()
