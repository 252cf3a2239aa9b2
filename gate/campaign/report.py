"""Report the contents of a ledger: what ran, what was exercised, and which rules were broken."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from ...model.scenario import Scenario
from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from ..console.output import one_line, plural, say
from ..files.scenario_file import write_scenario
from .items import Failure, Shrinking
from .ledger import Ledger
from .running import rules_of

SHOWN = 8  # how many rules a line names at most, and how many items without a result are listed


def report(console: Console, ledger: Ledger, out: Path) -> int:
    """Print the contents of the ledger, write the findings to `out`, and return the exit code."""
    if ledger.items:
        incomplete = f" ({ledger.incomplete:,} incomplete)" if ledger.incomplete else ""
        say(
            console,
            f"{ledger.items:,} items{incomplete}, "
            f"{ledger.scenarios:,} runs, {ledger.steps:,} steps, {ledger.seconds:,.0f} s of CPU, "
            f"{ledger.seconds / ledger.items:.2f} s per item",
        )
    never = _print_exercised(console, ledger)
    for item, reason in sorted(ledger.failed.items())[:SHOWN]:
        say(console, f"item {item} has no result: {reason}")
    if len(ledger.failed) > SHOWN:
        say(console, f"and {len(ledger.failed) - SHOWN:,} more without a result")
    if cut := ledger.incomplete - len(ledger.failed):
        say(console, f"{plural(cut, 'item')} incomplete: the target refused every run, or it hung")
    broken, doubtful = _findings(console, ledger, out)
    if broken:
        return BROKEN
    doubt = doubtful or ledger.failed or ledger.incomplete
    if doubt or never or not ledger.items:
        say(
            console,
            f"no findings in {ledger.items:,} items, but no verdict: some rules were never "
            f"exercised"
            if never and not doubt
            else f"no verdict after {ledger.items:,} items",
        )
        return INCONCLUSIVE
    say(console, f"no rule is broken in {ledger.items:,} items, and every rule was exercised")
    return CONFORMS


def _print_exercised(console: Console, ledger: Ledger) -> int:
    """Print a line for each revision; return how many rules were never exercised."""
    missing, settings = 0, ledger.settings
    for pair in settings.pairs:
        rules = [rule.id for rule in rules_of(*pair, settings.rules, settings.target)]
        never = [rule for rule in rules if not ledger.exercised.get(pair, Counter())[rule]]
        missing += len(never)
        line = f"{' '.join(pair)}: {len(rules) - len(never)} of {len(rules)} rules exercised"
        say(console, line + (f"; never {_few(never)}" if never else ""))
    return missing


def _findings(console: Console, ledger: Ledger, out: Path) -> tuple[int, int]:
    """Print the findings and write them to files. Return the number of broken rules, and the number
    of findings that show nothing about the scheduler, because a replay did not confirm them or
    because only the adapter can be to blame."""
    broken = doubtful = 0
    for name, question in ledger.failures_to_shrink().items():
        failure = question.failure
        where = f"{failure.scenario.system} {failure.scenario.revision}, {question.target}"
        if name not in ledger.findings:
            doubtful += 1
            say(
                console,
                f"{failure.rule} ({where}): not replayed yet; run the campaign again",
            )
            continue
        finding = ledger.findings[name]
        if finding is None:
            doubtful += 1
            say(
                console,
                f"{failure.rule} ({where}): not broken again when the same run was replayed, so "
                "this does not count",
            )
            continue
        broken += not finding.by_adapter
        doubtful += finding.by_adapter
        line = f"{finding.rule} ({where}): {finding.message}"
        word = "ADAPTER" if finding.by_adapter else "BROKEN"
        console.print(f"[red]{word}[/red] {escape(one_line(line))}")
        path = write_scenario(_with_origin(question, finding), out, finding.rule)
        command = ["schedproof", "replay", str(path), "--rule", finding.rule]
        command += [] if question.target == "model" else ["--target", question.target]
        say(console, f"  replay:   {shlex.join(command)}")
    return broken, doubtful


def _with_origin(question: Shrinking, finding: Failure) -> Scenario:
    name = f"{finding.rule} on {question.target}"
    origin = {
        "rule": finding.rule,
        "shape": finding.shape,
        "engine": "campaign",
        "note": f"{name}: {finding.message}",
        "found_on": {"target": question.target, "version": finding.scenario.revision or ""},
    }
    return replace(finding.scenario, name=name, origin=origin)


def _few(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more
