"""A question to Z3: what `python -m schedproof.gate.campaign.proving` reads, and its answer."""

import sys
from dataclasses import replace

from ...model.target import ModelTarget
from ...properties.checking.replay import replay
from ...solver.smt.obligation import discharge
from ...solver.spyre.admission_sequences import FORMULA_OF_REVISION, Setting, to_scenario
from ...solver.spyre.worst_case import fewest
from ...solver.systems import proofs_of
from .items import Proving, canonical, item_of
from .results import Failure, Result
from .running import failure_of, rules_of


def proven(item: Proving) -> Result:
    """What Z3 says of each lemma of a rule."""
    lemmas = proofs_of(item.system)[item.rule].obligations(item.block)
    says = {one.name: one.status for one in discharge(lemmas)}
    return Result(scenarios=len(says), says=says, complete="unknown" not in says.values())


def searched(item: Proving) -> Result:
    """The fewest requests that exceed the limit, which a replay on the model confirms.

    Raises:
        ArithmeticError: it does not.
    """
    formula = FORMULA_OF_REVISION[item.revision]
    block = item.block
    setting = Setting(
        formula, 0, block=block, chunk=2 * block, limit=item.limit, max_model_len=8 * block
    )
    says: dict[str, str] = {}
    failures: list[Failure] = []
    for asked in fewest(setting, item.requests):
        says[f"{asked.requests} requests"] = asked.answer
        if asked.answer == "sat":
            many = replace(setting, requests=asked.requests)
            scenario = to_scenario(many, list(asked.arrivals), item.revision)
            rules = rules_of(item.system, item.revision, (item.rule,))
            broken = replay(ModelTarget(), scenario, rules).broken
            if not broken:
                raise ArithmeticError("Z3's answer does not break the rule on the model")
            failures.append(failure_of(scenario, broken[0]))
    complete = "unknown" not in says.values()
    return Result(scenarios=len(says), says=says, failures=tuple(failures), complete=complete)


if __name__ == "__main__":
    asked_for = item_of(sys.stdin.buffer.read())
    assert isinstance(asked_for, Proving), asked_for
    answer = searched(asked_for) if asked_for.limit else proven(asked_for)
    sys.stdout.buffer.write(canonical(answer))
