"""Writes the table of known bugs.

`python -m schedproof.tests.mutants.known_bugs_table > docs/findings/known-bugs.md`: each bug, the
fault that brings it back, the rule that names it, and how long each engine takes from the start of
a search.
"""

from collections.abc import Sequence

from schedproof.gate.judging.profiles import set_hypothesis_home
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.faults import mutants_of, out_of_scope
from schedproof.tests.mutants.runner import Answer, judge, verdict

HEAD = """# Known bugs

This page is for readers who want to know whether schedproof would have found a bug they know about.
Each published bug of Spyre, vLLM, nano-vLLM and LLMServingSim was planted in a model. The table
says which rule catches the bug, and how long each engine took to find it. The times are from one
run on one core, without shrinking.

The page is written by `python -m schedproof.tests.mutants.known_bugs_table`. A test compares the
table with the planted faults.

| bug | what it does | rule | hypothesis | explorer |
|---|---|---|---|---|"""
NOT_ASKED = "not tried: the fault is in a wrapper around the model"


def cell(answers: Sequence[Answer], engine: str) -> str:
    answer = next((answer for answer in answers if answer.engine == engine), None)
    if answer is None:
        return NOT_ASKED
    return f"{answer.seconds:.1f} s, {answer.how}" if answer.detected else f"no: {answer.how}"


def main() -> None:
    set_hypothesis_home()
    print(HEAD)
    for fault in (fault for system in SYSTEMS for fault in mutants_of(system) if fault.bug):
        answers = judge(fault, quick=False)
        assert verdict(fault, answers) is None, fault.label
        rule = f"{fault.rule} (judged alone)" if fault.alone else fault.rule
        engines = " | ".join(cell(answers, engine) for engine in ("hypothesis", "explorer"))
        print(f"| {fault.bug} | {fault.does} | {rule} | {engines} |", flush=True)
    print("\n## Out of scope\n")
    for bug, why in (row for system in SYSTEMS for row in out_of_scope(system).items()):
        print(f"- {bug}: {why}")


if __name__ == "__main__":
    main()
