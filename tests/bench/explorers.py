"""Side by side: the explorer and Spin on the same model, rule and scope.

    python tests/bench/explorers.py [--seconds N] [--quick]

Spin's model is `spin/spyre.pml`, as one would write it; with LATE, a reduction made by hand is
added: nobody arrives behind somebody who waits. Both tools are asked for one rule, one process
each. Seconds are those of the whole answer: Spin's translation and compilation belong to it. What
does not end in time has no verdict. Needs spin and gcc.
"""

import argparse
import multiprocessing
import time
from dataclasses import replace

from schedproof.gate.exploring import memory_mb
from schedproof.solver.explored import Asked, Run
from schedproof.solver.spyre.scopes import SCOPES
from schedproof.spec.catalogue import load, select
from schedproof.tests.bench.spin import run as spin

LENGTHS = SCOPES[0]
# Rule, revision, requests, limits: the last is the scope of the README's table.
QUESTIONS = [
    ("SPY-R07", "2.1.2", 2, range(6, 41)),
    ("SPY-R07", "2.1.2", 3, range(26, 27)),
    ("SPY-R07", "2.1.2", 3, range(6, 41)),
    ("SPY-R07", "2.1.2", 4, range(26, 27)),
    ("SPY-R07", "2.1.2", 4, range(6, 41)),
]


def by_spin(rule, revision, requests, limits, seconds, late):
    """Verdict, states, seconds, MB."""
    macros = {
        **spin.SMALL,
        **spin.REVISIONS[revision],
        "REQUESTS": requests,
        "LIMIT_FROM": limits[0],
        "LIMIT_TO": limits[-1],
        rule.replace("SPY-", "CHECK_"): 1,
    }
    if late:
        macros["LATE"] = 1
    it = spin.verdict(macros, memory_mb=6000, seconds=seconds)
    spent = it.seconds_translate + it.seconds_compile + it.seconds_run
    return it.holds, it.states, spent, it.memory_mb


def by_explorer(rule, revision, requests, limits, seconds, reduced):
    """The same, in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(explore, (rule, revision, requests, tuple(limits), seconds, reduced))


def explore(rule, revision, requests, limits, seconds, reduced):
    """One exploration."""
    scope = replace(LENGTHS, requests=requests, limits=limits)
    began = time.monotonic()
    run = Run(Asked(revision, scope, reduced=reduced), select(load("spyre"), [rule]))
    for _ in run.exploration.run():
        if time.monotonic() - began > seconds:
            break
    explored = run.explored()
    holds = None if not explored.complete else not explored.found
    states = sum(explored.states_by_limit.values())
    return holds, states, time.monotonic() - began, memory_mb()


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for one answer")
    parser.add_argument("--quick", action="store_true", help="the first two questions only")
    options = parser.parse_args()
    if spin.MISSING:
        parser.exit(2, f"explorers.py: not found: {', '.join(spin.MISSING)}\n")
    print("| rule, revision, requests, limits | tool | verdict | states | seconds | MB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for rule, revision, requests, limits in QUESTIONS[: 2 if options.quick else None]:
        asked = (rule, revision, requests, limits, options.seconds)
        rows = [
            ("Spin", by_spin(*asked, late=False)),
            ("Spin, LATE", by_spin(*asked, late=True)),
            ("explorer", by_explorer(*asked, reduced=True)),
        ]
        if requests < 3:
            rows.append(("explorer, full graph", by_explorer(*asked, reduced=False)))
        ours = rows[2][1][2]
        verdicts = {holds for _, (holds, *_) in rows if holds is not None}
        assert len(verdicts) < 2, f"the tools disagree on {asked}: {rows}"
        question = f"{rule}, {revision}, {requests}, {limits[0]}-{limits[-1]}"
        for tool, (holds, states, seconds, memory) in rows:
            word = {True: "holds", False: "broken", None: "not in time"}[holds]
            print(
                f"| {question} | {tool} | {word} | {states:,} | {seconds:.1f} | {memory:.0f} "
                f"| {seconds / ours:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
