"""Nothing is held that was only exercised in runs which another broken rule ended."""

from schedproof import judge as judge_target
from schedproof.gate.judging.judge import judge

from ..build import Toy, entry
from .test_judge import THREE, BreaksThreeRules


def test_a_rule_that_breaks_only_behind_another_is_found(tmp_path):
    """nano-vLLM 0.2.0: NAN-R04 breaks only once NAN-R40 has."""
    rules = ["NAN-R40", "NAN-R04"]
    verdict = judge_target("model", system="nano_vllm", revision="0.2.0", rules=rules, out=tmp_path)
    assert entry(verdict, "NAN-R40").status == "violated"
    behind = entry(verdict, "NAN-R04")
    assert behind.status == "violated"
    assert "in a run that breaks NAN-R40 before: may be its consequence" in behind.message
    finding = next(one for one in verdict.findings if one.rule == "NAN-R04")
    assert "NAN-R40" in finding.behind


def test_what_only_ran_until_a_crash_is_inconclusive(gate):
    class CrashesWhenItDecodes(Toy):
        def bend(self, step):
            if step["kind"] == "decode":
                raise ValueError("no decode")

    verdict = judge(gate(CrashesWhenItDecodes()))
    assert entry(verdict, "ALL-R01").status == "violated"
    one = entry(verdict, "SPY-R20")
    assert one.status == "inconclusive"
    assert one.exercised > 0
    assert one.message.startswith("exercised only in runs that ALL-R01 (")


def test_rules_that_break_after_those_looked_into_are_not_held(gate):
    every = judge(gate(BreaksThreeRules(), THREE, max_failures=20))
    broken = {one.id for one in every.rules if one.status == "violated"}
    few = judge(gate(BreaksThreeRules(), THREE, max_failures=1))
    left = {one.id: one for one in few.rules if one.id in broken and one.status != "violated"}
    assert left
    assert {one.status for one in left.values()} == {"inconclusive"}
    assert all("--max-failures looks into more" in one.message for one in left.values())
    assert not {one.id for one in few.rules if one.status == "held"} & broken
