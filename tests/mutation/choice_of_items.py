"""What the choice of a campaign's items gains: findings an hour of CPU, with it and without.

`make choice-of-items CHANGES=FILE` runs this; FILE is what `time_to_find.py --json` kept. The
changes are those of its list that hide: a gate of profile quick finds none of them. Each becomes a
campaign of its own, by Hypothesis and the explorer, twice with each seed: as campaigns choose, and
in turn, where the plan learns nothing from results, so that each kind of work has as many items as
any other. Z3 has processes of its own, in which the model is as it was, so it is left out. A
campaign ends with its first failure or after `--seconds` of processor time.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from changes import Change, Mutant
from check import copied
from rule_coverage import JUDGED, LATE, Judging, ask_all, lists_of, rules_of
from time_to_find import QUICK
from times import Took, findings

CHOSEN, IN_TURN = "chosen", "in turn"


def hidden(lines: list[str]) -> set[tuple[str, Change]]:
    """Of the changes with their times those that no quick gate found, with their revisions."""
    kept = [json.loads(line) for line in lines]
    return {(one["revision"], Change(*one["change"])) for one in kept if not one["took"][QUICK][0]}


def campaign(asked: Judging, seed: int, seconds: float) -> Took:
    """A campaign in this process until its first failure; its steps are items."""
    import time

    from schedproof.gate.campaign.rounds import Rounds
    from schedproof.gate.campaign.running import run_item
    from schedproof.gate.campaign.settings import SCALES, Settings

    settings = Settings(
        seed=seed,
        pairs=((asked.system, asked.revision),),
        rules=tuple(rule.id for rule in rules_of(asked) if rule.checked),
        engines=("hypothesis", "explore"),
        scales={scale: {} for scale in SCALES},
    )
    rounds, items, began = Rounds(settings), 0, time.process_time()
    while waiting := rounds.fresh():
        for name, item in waiting:
            result = run_item(item)
            items += 1
            took = time.process_time() - began
            # `failed`: an engine raised an error on the changed model, which counts as a finding.
            if result.failures or result.failed:
                return Took(True, took, items)
            if took > seconds:
                return Took(False, took, items)
            rounds.done(name, result)
    return Took(False, time.process_time() - began, items)


def both(seeds: int, seconds: float, asked: Judging) -> list[dict[str, Took]]:
    """Both kinds of campaign on the model as it is loaded here, with its change, for each seed."""
    from schedproof.gate.campaign.choosing import Seen

    trials = []
    for seed in range(seeds):
        with mock.patch.object(Seen, "add"):
            in_turn = campaign(asked, seed, seconds)
        trials.append({CHOSEN: campaign(asked, seed, seconds), IN_TURN: in_turn})
    return trials


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("changes", type=Path, help="what `time_to_find.py --json` kept")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2, help="campaigns of each kind, a change")
    parser.add_argument("--seconds", type=float, default=35.0, help="of processor time")
    given = parser.parse_args()
    hide = hidden(given.changes.read_text(encoding="utf-8").splitlines())
    heads = "system", "items", "campaigns", "found", "items run", "CPU, h", "found an hour"
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|", flush=True)
    every: list[dict[str, Took]] = []
    late = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(folder)
        for system in dict.fromkeys(one.system for one in JUDGED):
            trials: list[dict[str, Took]] = []
            for asked in (one for one in JUDGED if one.system == system):
                sought = _sought(copy, asked, hide)

                def question(asked: Judging, _: dict[str, Any]) -> Any:
                    return both(given.seeds, given.seconds, asked)

                for _, answer in ask_all(copy, asked, sought, given.jobs, question):
                    if answer == LATE:
                        late += 1
                    else:
                        trials += [{how: Took(*one[how]) for how in one} for one in answer or []]
            for how in (CHOSEN, IN_TURN) if trials else ():
                print(findings(system, how, trials), flush=True)
            every += trials
    for how in (CHOSEN, IN_TURN) if every else ():
        print(findings("all", how, every))
    print(f"Left out: {late} changes that take too long or all memory.", file=sys.stderr)
    return 0


def _sought(copy: Path, asked: Judging, hide: set[tuple[str, Change]]) -> list[Mutant]:
    listed = [one for ones in lists_of(copy, asked).values() for one in ones]
    return [one for one in listed if (asked.revision, one.change) in hide]


if __name__ == "__main__":
    sys.exit(main())
