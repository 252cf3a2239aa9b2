"""What a ledger says: what ran, what was exercised, how near runs came, and what was found."""

import shlex
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from ...model.scenario import Scenario
from ..console.exit_codes import BROKEN, CONFORMS, INCONCLUSIVE
from ..console.output import say
from ..files.scenario_file import write_scenario
from .campaign import questions
from .damage import UNREADABLE, check
from .items import Shrinking
from .ledger import Ledger
from .results import Failure
from .running import rules_of

FAILED = """
SELECT item, json_extract(content, '$.failed') FROM results
WHERE json_extract(content, '$.failed') IS NOT NULL ORDER BY item
"""
UNPROVEN = """
SELECT json_extract(items.content, '$.system'), json_extract(items.content, '$.revision'),
    json_extract(items.content, '$.rule'), json_extract(items.content, '$.block'),
    lemma.key, lemma.value
FROM results JOIN items ON items.id = results.item, json_each(results.content, '$.says') AS lemma
WHERE json_extract(results.content, '$.says') IS NOT NULL
    AND lemma.value IN ('refuted', 'unguarded', 'unknown') ORDER BY 1, 2, 3, 4, 5
"""
COUNTED = {"hypothesis": "runs", "explore": "states", "z3": "lemmas"}
SHOWN = 8  # rules of one line, items without a result


def tell(console: Console, ledger: Ledger, out: Path) -> int:
    """Print what the ledger holds, write the findings to `out`, and give the exit code.

    Raises:
        FileError: the folder cannot be written to, or the ledger is damaged.
    """
    try:
        return _told(console, ledger, out)
    except (LookupError, sqlite3.Error, *UNREADABLE):
        check(ledger)  # says which row it is; if none is, the error is ours
        raise


def _told(console: Console, ledger: Ledger, out: Path) -> int:
    ran = ledger.rows("SELECT * FROM ran ORDER BY engine")
    for engine, items, broken_off, scenarios, steps, seconds in ran:
        each = seconds / max(items, 1)
        say(
            console,
            f"{engine}: {items:,} items{f' ({broken_off:,} not complete)' * bool(broken_off)}, "
            f"{scenarios:,} {COUNTED[engine]}, {steps:,} steps, "
            f"{seconds:,.0f} s of CPU, {each:.2f} s an item",
        )
    never = _at_stake(console, ledger)
    failed = ledger.rows(FAILED)
    for item, why in failed[:SHOWN]:
        say(console, f"item {item} has no result: {why}")
    if len(failed) > SHOWN:
        say(console, f"and {len(failed) - SHOWN:,} more without a result: see table results")
    unproven = ledger.rows(UNPROVEN)
    for system, revision, rule, block, lemma, status in unproven:
        say(console, f"{rule} ({system} {revision}, block {block}): {lemma}: {status}")
    conflicts = ledger.rows("SELECT DISTINCT item FROM conflicts ORDER BY item")
    for (item,) in conflicts:
        say(console, f"conflict: item {item} gave another result elsewhere: see table conflicts")
    broken, doubtful = _findings(console, ledger, out)
    if broken:
        return BROKEN
    items = sum(of_engine for _, of_engine, *_ in ran)
    doubt = doubtful or failed or conflicts or unproven
    if doubt or never or not items:
        say(
            console,
            f"no finding in {items:,} items; no verdict: not everything was exercised"
            if never and not doubt
            else f"no verdict after {items:,} items",
        )
        return INCONCLUSIVE
    say(console, f"no rule is broken in {items:,} items, and each was exercised")
    return CONFORMS


def _at_stake(console: Console, ledger: Ledger) -> int:
    """A line for each revision: rules that were exercised, those that never were, near misses."""
    stakes: dict[tuple[str, str], set[str]] = {}
    for system, revision, rule, _ in ledger.rows("SELECT * FROM witnesses"):
        stakes.setdefault((system, revision), set()).add(rule)
    near: dict[tuple[str, str], list[str]] = {}
    for system, revision, key, left in ledger.rows("SELECT * FROM near_misses"):
        near.setdefault((system, revision), []).append(f"{key} {left}")
    missing = 0
    for campaign in ledger.campaigns():
        for pair in campaign.pairs:
            rules = [rule.id for rule in rules_of(*pair, campaign.rules, campaign.target)]
            never = [rule for rule in rules if rule not in stakes.get(pair, ())]
            missing += len(never)
            line = f"{' '.join(pair)}: {len(rules) - len(never)} of {len(rules)} rules exercised"
            line += f"; never {_few(never)}" if never else ""
            line += f"; left of {', '.join(near[pair])}" if pair in near else ""
            say(console, line)
    return missing


def _findings(console: Console, ledger: Ledger, out: Path) -> tuple[int, int]:
    """The findings, each with its file and the command that replays it; how many count, and how
    many do not."""
    known = ledger.findings()
    broken = doubtful = 0
    for key, asked in sorted(questions(ledger).items()):
        about = asked.failure.scenario
        where = f"{about.system} {about.revision}, {asked.target}"
        if key not in known:
            doubtful += 1
            say(console, f"{asked.failure.rule} ({where}): not replayed yet; the next run does it")
            continue
        found = known[key]
        if found is None:
            doubtful += 1
            say(console, f"{asked.failure.rule} ({where}): did not break again: does not count")
            continue
        broken += 1
        scenario = _named(asked, found)
        path = write_scenario(scenario, out, found.rule)
        console.print(f"[red]BROKEN[/red] {escape(f'{found.rule} ({where}): {found.message}')}")
        options = "" if asked.target == "model" else f" --target {shlex.quote(asked.target)}"
        say(
            console,
            f"  replay:   schedproof replay {shlex.quote(str(path))} --rule {found.rule}{options}",
        )
    return broken, doubtful


def _named(asked: Shrinking, found: Failure) -> Scenario:
    """The scenario as a corpus has it."""
    note = f"{found.rule} on {asked.target}: {found.message}"
    origin = {
        "rule": found.rule,
        "shape": found.shape,
        "engine": "campaign",
        "note": note,
        "found_on": {"target": asked.target, "version": found.scenario.revision or ""},
    }
    name = f"{found.rule} on {asked.target}"
    return replace(found.scenario, name=name, origin=origin)


def _few(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more
