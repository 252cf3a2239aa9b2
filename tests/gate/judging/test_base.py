"""A gate against a base counts what the base keeps and the change breaks, and nothing else."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from schedproof.gate.compare.change import changes_of
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging import initial_replays
from schedproof.gate.judging.base import Base, BaseOptions, Compared, Noted
from schedproof.gate.judging.context import GateContext
from schedproof.gate.judging.findings import Place, shrink_and_keep
from schedproof.gate.judging.initial_replays import replay_own
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.verdict import Differed
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.target_spec import TargetSpec
from schedproof.model.faults import ConfigRefused, TargetCrashed
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.checking.differential_target import DifferentialTarget, Side
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken
from schedproof.spec.catalogue import load, select

from ..build import Ghosts, Toy, entry

TERMS = ("spyre", "sound")
ALONE = Scenario(
    system="spyre",
    revision="sound",
    config=full_config("spyre", "sound", {}),
    requests=(Request(id="r0", arrival=0, prompt=(("r0", 5),), max_tokens=9),),
)


class ShowsMore(Toy):
    """Says that it holds more blocks for a request than it does: no rule of these tests."""

    def bend(self, step):
        step["reserved_blocks"] += 1


class GhostsAndMore(Ghosts, ShowsMore):
    def bend(self, step):
        Ghosts.bend(self, step)
        ShowsMore.bend(self, step)


@pytest.fixture
def against(gate, monkeypatch):
    """A gate of a change against its base, by the rule that no request is invented."""
    monkeypatch.setattr(probing, "SCALES", ("small",))

    def make(change, base, rules="ALL-R03", **options) -> GateContext:
        pair = DifferentialTarget(Side(change, *TERMS), Side(base, *TERMS))
        spec = TargetSpec("base", "factory", module="toy", factory="base")
        options["base"] = BaseOptions(spec, (TERMS, TERMS))
        made: GateContext = gate(pair, rules, **options)
        made.base = Base(pair, select(load("spyre"), rules.split()))
        made.results.compared = made.base.compared
        return made

    return make


def test_what_the_base_breaks_in_the_same_scenario_is_not_counted(against):
    verdict = judge(against(Ghosts(), Ghosts()), changes_of)
    assert (verdict.exit_code, verdict.findings, verdict.decisions) == (0, (), ())
    rule = entry(verdict, "ALL-R03")
    assert rule.status == "known"
    assert "the base breaks it as well (" in (rule.message or "")


class ShowsLess(Toy):
    """No longer shows which requests wait and run."""

    def start(self, *args):
        reply = super().start(*args)
        return reply | {"observes": sorted({*reply["observes"]} - {"waiting", "running"})}


def test_fields_that_only_one_shows_are_named_with_their_rules(against):
    def lines(change, base, **options):
        judged = against(change, base, "ALL-R03 SPY-R02")
        judged.options = dataclasses.replace(judged.options, **options)
        said: list[str] = []
        judged.report = lambda event: said.append(getattr(event, "text", ""))
        judge(judged)
        return [line for line in said if "running, waiting" in line]

    assert lines(ShowsLess(), Toy()) == [
        "the target does not show running, waiting, which the base shows. Rules that are not "
        "judged for this reason: ALL-R03"
    ]
    assert lines(ShowsLess(), ShowsLess()) == lines(Toy(), ShowsLess()) == []
    compared = lines(Toy(), ShowsLess(), rules=())
    assert compared == ["not compared, because only A shows them: running, waiting"]


def test_that_holds_where_the_two_differ_otherwise_too(against):
    verdict = judge(against(GhostsAndMore(), Ghosts()), changes_of)
    assert (verdict.exit_code, verdict.findings) == (0, ())
    assert [decision.what for decision in verdict.decisions] == ["bookkeeping: reserved_blocks"]


def test_a_failure_of_block_numbers_is_asked_of_a_base_that_decides_alike(monkeypatch):
    # Blocks are compared up to renaming in each step, so a block that changes hands shows in none.
    pair = DifferentialTarget(Side(Toy(), *TERMS), Side(Toy(), *TERMS))
    base = Base(pair, select(load("vllm"), ["V1-R23"]))
    monkeypatch.setattr(base, "failures_of_base", lambda *_: [])
    broken = [Broken("V1-R23", 3, "r1 is loaded into block 2, to which a step still writes")]
    assert base.new(broken, ALONE) == broken


def test_a_base_that_was_asked_before_is_asked_again_in_the_same_run(monkeypatch):
    # To be asked, the base runs the scenario alone. Here it is then not beside the change again.
    pair = DifferentialTarget(Side(Toy(), *TERMS), Side(Toy(), *TERMS))
    pair.start(*TERMS, ALONE.config)
    base = Base(pair, select(load("spyre"), ["ALL-R09", "ALL-R03"]))
    of_both = [Broken("ALL-R09", 3, "1 block is lost")]
    of_the_change = [Broken("ALL-R03", 5, "r0 is in no queue")]

    def ends(*args):
        return SimpleNamespace(steps=4, cut_short=bool(args[-1](of_both, ALONE)))

    monkeypatch.setattr("schedproof.gate.judging.base.replay", ends)
    assert base.new(of_both, ALONE) == []
    assert base.new(of_the_change, ALONE) == of_the_change


def test_a_base_that_could_not_run_is_not_beside_the_change_again(monkeypatch):
    pair = DifferentialTarget(Side(Toy(), *TERMS), Side(Toy(), *TERMS))
    pair.start(*TERMS, ALONE.config)
    base = Base(pair, select(load("spyre"), ["ALL-R09"]))

    def refuses(*_):
        raise ConfigRefused("start", "no")

    monkeypatch.setattr("schedproof.gate.judging.base.replay", refuses)
    base.new([Broken("ALL-R09", 0, "1 block is lost")], ALONE)
    assert not pair.together


def test_what_the_base_keeps_is_counted_and_shrunk(against):
    verdict = judge(against(Ghosts(), Toy()), changes_of)
    [finding] = verdict.findings
    assert (verdict.exit_code, finding.rule, finding.requests) == (1, "ALL-R03", 2)
    assert verdict.base is not None
    assert verdict.repaired == ()


def test_what_only_the_base_breaks_is_repaired(against):
    verdict = judge(against(Toy(), Ghosts()), changes_of)
    assert (verdict.exit_code, verdict.findings) == (0, ())
    [repaired] = verdict.repaired
    assert repaired.what == "ALL-R03"
    assert repaired.replay.endswith(" --target base --rule ALL-R03")


def test_each_kind_of_difference_is_one_entry_with_the_command_that_shows_it(against):
    verdict = judge(against(ShowsMore(), Toy()), changes_of)
    [decision] = verdict.decisions
    assert decision.what == "bookkeeping: reserved_blocks"
    assert decision.runs > 1
    assert decision.replay == f"schedproof replay {decision.scenario} --target toy --base base"


def test_the_commands_of_a_gate_with_a_base_can_be_copied_into_a_shell(against, tmp_path):
    for change, base in ((ShowsMore(), Toy()), (Toy(), Ghosts())):
        judged = against(change, base)
        spec = TargetSpec("cmd:old --json", "command", command=("old", "--json"))
        judged.options = dataclasses.replace(
            judged.options, out=tmp_path / "my out", base=judged.options.base._replace(spec=spec)
        )
        verdict = judge(judged, changes_of)
        commands = [shlex.split(found.replay) for found in verdict.decisions + verdict.repaired]
        assert commands
        for words in commands:
            assert Path(words[2]).is_file()
            assert "cmd:old --json" in words


def test_the_first_difference_of_a_kind_is_an_event_at_once(against):
    told = []
    judged = against(ShowsMore(), Toy())
    judged.report, judged.base.began = (
        told.append,
        judged.base.began - 60,
    )  # it has taken long to load
    verdict = judge(judged, changes_of)
    [first] = [event for event in told if isinstance(event, Differed)]
    assert (first.what, first.scale) == ("bookkeeping: reserved_blocks", "small")
    assert re.fullmatch(
        rf"differs {first.what}: step \d+, small scale, after \d\.\d s: {first.scenario}",
        str(first),
    )
    assert told[told.index(first) - 1].runs <= 1
    scenario = read_scenario(Path(first.scenario))
    assert difference_in(judged, scenario) == verdict.decisions[0].what


def difference_in(judged, scenario):
    replay(judged.target, scenario, ())
    return judged.base.pair.difference.shape


def test_a_rule_that_the_base_breaks_elsewhere_is_still_searched_for(against):
    later = Ghosts()
    later.crowd = 3
    verdict = judge(against(Ghosts(), later, examples=30), changes_of)
    [finding] = verdict.findings
    assert (finding.rule, finding.requests) == ("ALL-R03", 2)
    assert verdict.repaired == ()


class Breaks(Toy):
    """Shows a stranger, which is in no request (against ALL-R03), in the steps of `strangers`.

    It shows `more` reserved blocks than it has, so that it differs from another toy in each step.
    """

    strangers: Mapping[int, str] = {}
    more = 0
    crash: int | None = None

    def start(self, *args):
        self.number = -1
        return super().start(*args)

    def bend(self, step):
        self.number += 1
        if self.number == self.crash:
            raise TargetCrashed("step", "RuntimeError: the base's own", "")
        step["reserved_blocks"] += self.more
        if self.number in self.strangers:
            step["waiting"] = [self.strangers[self.number]]


def toy(**attributes):
    return type("Made", (Breaks,), attributes)()


@pytest.fixture
def in_one_run(against):
    """The failures of ALL-R03 in the only run of a gate, in which the base breaks the rule, too."""

    def judged(change, base):
        judged = against(change, base, corpus=(ALONE,))
        replay_own(judged)
        return [(found.rule, found.step) for found in judged.results.findings]

    return judged


@pytest.mark.parametrize(
    ("change", "base", "found"),
    [
        ({4: "x"}, {4: "x"}, []),
        ({4: "x"}, {2: "x"}, []),  # ... one that comes later follows its decisions
        ({2: "x"}, {4: "x"}, [("ALL-R03", 2)]),
        ({2: "x", 4: "y"}, {2: "x"}, [("ALL-R03", 4)]),
    ],
)
def test_a_failure_of_the_base_explains_the_same_failure_from_then_on(
    in_one_run, change, base, found
):
    assert in_one_run(toy(strangers=change, more=1), toy(strangers=base)) == found


@pytest.mark.parametrize("crash", [1, 6])
def test_a_crash_of_the_base_explains_no_other_failure(in_one_run, crash):
    found = in_one_run(toy(strangers={4: "x"}), toy(crash=crash))
    assert found == [("ALL-R03", 4)]


class DiffersLater(Breaks):
    """Differs from another toy after it has broken ALL-R03."""

    strangers: Mapping[int, str] = {2: "x"}

    def bend(self, step):
        super().bend(step)
        step["reserved_blocks"] += self.number > 4


def test_what_differs_after_the_base_was_asked_is_compared(against):
    judged = against(DiffersLater(), toy(strangers={2: "x"}), corpus=(ALONE,))
    judged.base._unseen.add("ALL-R03")
    replay_own(judged)
    assert judged.results.findings == []
    assert [*judged.results.compared.differences] == ["bookkeeping: reserved_blocks"]


def test_a_failure_to_which_the_base_comes_in_a_later_step_of_the_run_is_not_kept(against):
    judged = against(toy(strangers={4: "x"}, more=1), toy(strangers={6: "x"}))
    [of_base] = {
        failure.message: failure for failure in judged.base.failures_of_base(ALONE)
    }.values()
    first = of_base._replace(step=4)
    assert not judged.base.has(first, ALONE)
    judged.base._at_any_step.add("ALL-R03")
    assert judged.base.has(first, ALONE)
    assert shrink_and_keep(judged, Place("hypothesis", "small"), ALONE, first, 0, 0.0) is None


def test_a_base_that_does_not_start_is_named(against):
    class Closed(Toy):
        def start(self, system, revision, config):
            return {"ok": False, "error": "config", "message": "closed"}

    class Crashes(Toy):
        def start(self, system, revision, config):
            raise ValueError("no")

    with pytest.raises(
        ConfigRefused, match=r"B: closed\).*; A is the target, and B is its base base"
    ):
        judge(against(Toy(), Closed()), changes_of)
    with pytest.raises(TargetCrashed, match=r"B: ValueError: no, in .* \(B is the base base\)"):
        judge(against(Toy(), Crashes()), changes_of)


class CrashesAtStart(Toy):
    """Raises at `start` if two requests fit into a batch."""

    def start(self, system, revision, config):
        if config["max_num_seqs"] == 2:
            raise ValueError("two")
        return super().start(system, revision, config)


def test_a_crash_at_the_start_is_blamed_on_the_target_that_crashes(against):
    verdict = judge(against(CrashesAtStart(), Toy(), "ALL-R01", examples=40), changes_of)
    assert (verdict.exit_code, entry(verdict, "ALL-R01").status) == (1, "violated")

    verdict = judge(against(Toy(), CrashesAtStart(), "ALL-R01", examples=40), changes_of)
    assert (verdict.exit_code, entry(verdict, "ALL-R01").status) == (0, "held")
    assert [change.what for change in verdict.repaired] == ["ALL-R01"]

    verdict = judge(against(CrashesAtStart(), CrashesAtStart(), "ALL-R01", examples=40), changes_of)
    assert (verdict.exit_code, entry(verdict, "ALL-R01").status) == (0, "known")


def test_a_base_that_stands_still_does_not_run_to_the_bound_of_completion(against):
    class StandsStill(Toy):
        steps = 0

        def step(self):
            self.steps += 1
            reply = super().step()
            step = {"kind": "idle", "scheduled": {}, "waiting": ["r0"], "running": []}
            return reply | {"step": reply["step"] | step | {"emitted": {}, "finished": {}}}

    base, long = StandsStill(), replace(ALONE.requests[0], max_tokens=20_000)
    config = full_config("spyre", "sound", {"max_model_len": 32_768})
    judged = against(Toy(), base, rules="ALL-R10")
    scenario = replace(ALONE, requests=(long,), config=config)
    assert {failure.rule for failure in judged.base.failures_of_base(scenario)} == {"ALL-R10"}
    assert base.steps < 2_000


def test_a_change_that_stands_still_as_its_base_does_is_not_accused_of_the_bound(against):
    class StandsStill(Toy):
        def step(self):
            reply = super().step()
            step = {"kind": "idle", "scheduled": {}, "waiting": ["r0"], "running": []}
            return reply | {"step": reply["step"] | step | {"emitted": {}, "finished": {}}}

    long = replace(ALONE.requests[0], max_tokens=2_000)
    config = full_config("spyre", "sound", {"max_model_len": 32_768})
    judged = against(Toy(), StandsStill(), rules="ALL-R10 ALL-R06")
    scenario = replace(ALONE, requests=(long,), config=config)
    of_base = judged.base.failures_of_base(scenario, to_the_end=True)
    assert {failure.rule for failure in of_base} == {"ALL-R10", "ALL-R06"}
    [late] = [failure for failure in of_base if failure.rule == "ALL-R06"]
    assert judged.base.new([late], scenario) == []


class Lonely(Toy):
    """Shows a stranger (against ALL-R03) in runs of at most `crowd` requests."""

    crowd = 1

    def start(self, *args):
        self.added = 0
        return super().start(*args)

    def add(self, request):
        self.added += 1
        return super().add(request)

    def bend(self, step):
        if self.added <= self.crowd:
            step["waiting"] = [*step["waiting"], "x"]


class Lonelier(Lonely):
    crowd = 9


def test_a_failure_that_the_base_has_with_a_request_fewer_is_not_the_changes(against, monkeypatch):
    beside = replace(ALONE.requests[0], id="r1", prompt=(("r1", 5),))
    seeds = {"two": replace(ALONE, requests=(*ALONE.requests, beside))}
    monkeypatch.setattr(initial_replays, "seed_corpus", lambda *_: seeds)
    monkeypatch.setattr(initial_replays, "shortest_first", lambda _: {})

    def judged(base):
        verdict = judge(against(Lonelier(), base, examples=1, corpus_steps=99), changes_of)
        return verdict.exit_code, entry(verdict, "ALL-R03").status

    assert judged(Lonely()) == (0, "known")
    assert judged(Toy()) == (1, "violated")


ON_PURPOSE, BOUND, CHOICE, ENDLESS = "SPY-R42", "ALL-R03", "SPY-R38", "ALL-R10"


@pytest.fixture
def counted(monkeypatch):
    """The rules that count in each step of a run, and those that an intended difference explains.

    The change breaks SPY-R42 on purpose, and the base breaks nothing.
    """

    def judged(*steps):
        pair = DifferentialTarget(Side(Toy(), *TERMS), Side(Toy(), *TERMS))
        rules = select(load("spyre"), [BOUND, CHOICE, ENDLESS, "ALL-R05"])
        base = Base(pair, rules, select(load("spyre"), [ON_PURPOSE]))
        monkeypatch.setattr(base, "failures_of_base", lambda *_: [])
        pair.runs, pair.differences = 1, ["they differ"]
        broken = [[Broken(rule, number, "") for rule in step] for number, step in enumerate(steps)]
        new = [[failure.rule for failure in base.new(step, ALONE)] for step in broken]
        return new, dict(base.compared.intended)

    return judged


def test_a_decision_after_an_intended_difference_may_follow_from_it(counted):
    assert counted([CHOICE], [ON_PURPOSE]) == ([[CHOICE], []], {})
    assert counted([ON_PURPOSE, CHOICE]) == ([[]], {CHOICE: 1})
    assert counted([ON_PURPOSE], [CHOICE], [CHOICE]) == ([[], [], []], {CHOICE: 1})


def test_an_intended_difference_explains_a_wait_but_none_without_end(counted):
    assert counted([ON_PURPOSE], ["ALL-R05", ENDLESS]) == ([[], [ENDLESS]], {"ALL-R05": 1})


def test_no_intended_difference_explains_a_lost_request(counted):
    assert counted([ON_PURPOSE], [BOUND, CHOICE]) == ([[], [BOUND]], {CHOICE: 1})


def test_what_two_parts_of_a_gate_have_compared_is_added_and_the_smaller_run_is_kept():
    def noted(tokens):
        request = Request(id="a", arrival=0, prompt=(("a", tokens),), max_tokens=1)
        return Noted(Scenario(system="spyre", requests=(request,)), "hypothesis", "small")

    first, second = Compared(), Compared()
    first.repaired, second.repaired = {"A": noted(5), "B": noted(1)}, {"A": noted(3)}
    first.shared.update("CC")
    second.intended.update("E")
    second.shared.update("CD")
    first.add(second)
    assert first.repaired == {"A": noted(3), "B": noted(1)}
    assert (first.shared, first.intended) == ({"C": 3, "D": 1}, {"E": 1})
