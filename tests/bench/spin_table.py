"""What Spin says of the scheduler's rules, by number of requests, limit, revision and aborts.

python tests/bench/spin_table.py [--requests N ...] [--limits N ...] [--with MACROS ...]
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product

from schedproof.benchmarks.spin import (
    REVISIONS,
    RULES,
    SMALL,
    Macros,
    Verdict,
    asked_rule,
    replay_trail,
    verdict,
)

NO_MORE = "none"


def questions(
    requests: Sequence[int], limits: Sequence[int], rules: Sequence[str], further: Sequence[str]
) -> Iterator[tuple[str, int, int, str, Macros]]:
    """Revision, requests, limit, further macros and all macros of what the command asks."""
    for count, (revision, chosen), more, limit, rule in product(
        requests, REVISIONS.items(), further, limits, rules
    ):
        asked = dict.fromkeys([*more.split("+"), rule], 1)
        asked.pop(NO_MORE, None)
        macros = {**SMALL, **chosen, **asked, "REQUESTS": count, "LIMIT": limit}
        yield revision, count, limit, more, macros


def row(revision: str, count: int, limit: int, more: str, macros: Macros, it: Verdict) -> str:
    """One answer as a row of the table."""
    said = {True: "holds", False: "broken", None: "cut short"}[it.holds]
    if it.trail:
        said += ", confirmed" if replay_trail(macros, it.trail).confirmed else ", NOT CONFIRMED"
    cells = [revision, count, limit, more, asked_rule(macros), said]
    cells += [f"{it.states:,}", f"{it.transitions:,}", it.depth]
    seconds = (it.seconds_translate, it.seconds_compile, it.seconds_run)
    cells += [" + ".join(f"{one:.1f}" for one in seconds), f"{it.memory_mb:.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What Spin says of the scheduler's rules.")
    parser.add_argument("--requests", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--limits", type=int, nargs="+", default=[12, 20, 26, 40])
    parser.add_argument("--rules", nargs="+", default=["CHECK_R07", "CHECK_R35"], choices=RULES)
    further = [NO_MORE, "ABORTS", "LATE", "LATE+ABORTS"]
    parser.add_argument("--with", nargs="+", default=further, dest="further", help="e.g. FOREVER")
    parser.add_argument("--seconds", type=float, default=180.0, help="of one search")
    parser.add_argument("--memory", type=int, default=6000, help="MB of one search")
    options = parser.parse_args()
    heads = ["revision", "requests", "limit", "with", "rule", "answer", "states", "transitions"]
    heads += ["depth", "s: spin + gcc + pan", "MB"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for *about, macros in questions(
        options.requests, options.limits, options.rules, options.further
    ):
        it = verdict(macros, memory_mb=options.memory, seconds=options.seconds)
        print(row(*about, macros, it), flush=True)


if __name__ == "__main__":
    main()
