"""Does a gate ever report a correct scheduler as wrong if the scheduler hides fields?

Gate number k runs on the model of a conforming revision, with seed k and some randomly chosen
fields hidden. The tool prints each rule that a gate reports as broken, and each rule that it
reports as held although the rule needs a hidden field. The 2,000 gates take an hour on two cores:

    make tool NAME=hidden_fields OPTIONS="--gates 100 --jobs 2"
"""

import argparse
import random
import sys
import tempfile
from multiprocessing import get_context

from schedproof.gate.library.judging import judge
from schedproof.model.observation import FIELDS
from schedproof.spec.catalogue import load
from schedproof.tests.properties.checking.test_hidden_fields import OPTIONAL, SOUND, hiding


def accusations(number: int) -> list[str]:
    """Run gate `number` and return its wrong claims."""
    chance = random.Random(number)
    system, revision = chance.choice(SOUND)
    hidden = frozenset(chance.sample(OPTIONAL, chance.randint(1, len(OPTIONAL))))
    needs = {rule.id: FIELDS.intersection(rule.needs) for rule in load(system)}
    with tempfile.TemporaryDirectory() as out:
        verdict = judge(hiding(hidden), system=system, revision=revision, seed=number, out=out)
    where = f"gate {number}: {system} {revision}, hidden {', '.join(sorted(hidden))}"
    return [
        f"{where}: {rule.id} is {rule.status}: {rule.message or 'it needs hidden fields'}"
        for rule in verdict.rules
        if rule.status == "violated" or (rule.status == "held" and needs[rule.id] & hidden)
    ]


def main() -> int:
    """Run the gates and print their wrong claims. Return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first gate")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.gates)
    accused = 0
    with get_context("spawn").Pool(given.jobs) as pool:
        for found in pool.imap_unordered(accusations, numbers):
            accused += bool(found)
            for line in found:
                print(line, flush=True)
    print(f"{given.gates} gates, {accused} with a wrong claim")
    return int(accused > 0)


if __name__ == "__main__":
    sys.exit(main())
