"""Known deviations: what they cover, and when an entry fails the gate."""

import json
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from schedproof.gate.console import BROKEN, CONFORMS, INCONCLUSIVE
from schedproof.gate.files.scenario_file import FileError, read_scenario, write_scenario
from schedproof.gate.judging.deviations import Deviation, is_version, read_deviations
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.verdict import Found, Progress
from schedproof.gate.reports.outcome import broken_off
from schedproof.gate.targets import probe as probing
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken
from schedproof.spec.catalogue import load, select

from ..build import Toy

RULES = load("spyre")
TODAY = date(2026, 5, 1)
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}
TWO = Scenario(
    system="spyre",
    revision="sound",
    config=full_config("spyre", "sound", SMALL),
    requests=tuple(
        Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=4) for name in ("r0", "r1")
    ),
)


class Strangers(Toy):
    """Beside those that wait waits a request unknown (against ALL-R03), once two run."""

    def bend(self, step):
        if len(step["running"]) > 1:
            step["waiting"] = [*step["waiting"], "stranger"]


class NoCaching(Toy):
    """Takes no prefix caching."""

    def start(self, system, revision, config):
        if config["prefix_caching"]:
            return {"ok": False, "error": "config", "message": "$.config.prefix_caching is true"}
        return super().start(system, revision, config)


def entry(**values):
    given = {"rule": "ALL-R03", "reason": "issue 12", "until": date(2026, 12, 31)} | values
    lines = [f"{k} = {v if isinstance(v, date) else repr(v)}" for k, v in given.items()]
    return "[[known]]\n" + "\n".join(lines) + "\n"


def reading(folder, *entries, today=TODAY):
    path = folder / "known.toml"
    path.write_text("".join(entries))
    return read_deviations(path, "spyre", RULES, today)


@pytest.fixture
def scenario(tmp_path):
    """A scenario in which `Strangers` break ALL-R03, by its name."""
    return write_scenario(TWO, tmp_path, "ALL-R03").name


@pytest.fixture
def judging(gate, tmp_path, monkeypatch):
    def judging(target, *entries, rules="ALL-R03", today=TODAY):
        return judge(gate(target, rules, deviations=reading(tmp_path, *entries, today=today)))

    monkeypatch.setattr(probing, "SCALES", ("small",))
    return judging


def states(verdict):
    return [deviation.state for deviation in verdict.deviations]


@pytest.mark.slow
def test_a_failure_of_the_shape_of_the_entrys_scenario_is_known(judging, scenario):
    verdict = judging(Strangers(), entry(scenario=scenario))
    assert (states(verdict), verdict.findings, verdict.exit_code) == (["known"], (), CONFORMS)
    [rule] = verdict.rules
    assert (rule.status, rule.message) == ("known", "issue 12 (until 2026-12-31)")
    assert rule.exercised > 0


def test_a_failure_of_the_named_version_is_known(judging):
    verdict = judging(Strangers(), entry(version="sound"))
    assert (states(verdict), verdict.findings, verdict.exit_code) == (["known"], (), CONFORMS)


def test_a_target_that_refuses_every_request_is_no_pass_although_that_is_known(judging):
    class Refuses(Toy):
        def add(self, request):
            return {"ok": False, "error": "rejected", "message": "no"}

    verdict = judging(Refuses(), entry(rule="ALL-R12", version="sound"), rules="ALL-R12")
    assert (states(verdict), verdict.findings, verdict.exit_code) == (["known"], (), INCONCLUSIVE)
    assert broken_off(verdict) == "the target accepted no request, so nothing was judged"


@pytest.mark.parametrize("name", ["a", "r7", "in"])
@pytest.mark.parametrize("search", ["r0", "a"])
def test_an_id_of_a_request_may_be_a_word_of_the_message(tmp_path, name, search):
    requests = (replace(TWO.requests[0], id=name),)
    scenario = write_scenario(replace(TWO, requests=requests), tmp_path, "ALL-R03").name
    known = reading(tmp_path, entry(scenario=scenario))
    message = "2 requests run in a step"
    known.replayed(0, [[Broken("ALL-R03", 3, message)]])
    found = replace(TWO, requests=(replace(TWO.requests[0], id=search),))
    new = known.in_run()
    assert new([Broken("ALL-R03", 5, message.replace("2", "4"))], found) == []
    other = [Broken("ALL-R03", 5, "2 requests wait in a step")]
    assert known.in_run()(other, found) == other


def test_an_entry_whose_requests_are_refused_is_not_out_of_date(judging, scenario):
    class RefusesOne(Toy):
        def add(self, request):
            if request["id"] == TWO.requests[1].id:
                return {"ok": False, "error": "rejected", "message": "not here"}
            return super().add(request)

    [deviation] = judging(RefusesOne(), entry(scenario=scenario)).deviations
    assert deviation.state == "unused"
    name = TWO.requests[1].id
    assert deviation.says == f"the target refuses the scenario: {name}: not here"


class Crashes(Toy):
    """Raises once two requests run."""

    def bend(self, step):
        if len(step["running"]) > 1:
            [][0]


class CrashesElsewhereToo(Crashes):
    """Raises the same exception elsewhere, too, once one request runs beside one that waits."""

    def bend(self, step):
        if len(step["running"]) == 1 and step["waiting"]:
            self.fail()
        super().bend(step)

    def fail(self):
        [][0]


@pytest.mark.slow
def test_a_known_crash_covers_no_other_crash_with_the_same_message(judging, tmp_path):
    # both arrive, and run, in different steps: no request waits while another one runs
    late = (TWO.requests[0], replace(TWO.requests[1], arrival=2))
    scenario = write_scenario(replace(TWO, requests=late), tmp_path, "ALL-R01").name
    known = judging(Crashes(), entry(rule="ALL-R01", scenario=scenario), rules="ALL-R01")
    assert (states(known), known.findings, known.exit_code) == (["known"], (), CONFORMS)
    new = judging(CrashesElsewhereToo(), entry(rule="ALL-R01", scenario=scenario), rules="ALL-R01")
    assert (states(new), len(new.findings), new.exit_code) == (["known"], 1, BROKEN)


def test_without_an_entry_the_same_failure_breaks_the_gate(judging):
    verdict = judging(Strangers())
    assert (len(verdict.findings), verdict.exit_code) == (1, BROKEN)


@pytest.mark.slow
def test_an_entry_whose_scenario_starts_to_pass_fails_the_gate(judging, scenario):
    verdict = judging(Toy(), entry(scenario=scenario))
    assert (states(verdict), verdict.exit_code) == (["passes"], BROKEN)


@pytest.mark.slow
def test_an_entry_that_a_gate_does_not_meet_is_no_failure(judging):
    verdict = judging(Toy(), entry(version="sound"))
    assert (states(verdict), verdict.exit_code) == (["not_met"], CONFORMS)


@pytest.mark.slow
def test_an_entry_past_its_date_covers_nothing_and_fails_the_gate(judging, scenario):
    late = date(2027, 1, 1)
    broken = judging(Strangers(), entry(scenario=scenario), today=late)
    assert (states(broken), len(broken.findings), broken.exit_code) == (["expired"], 1, BROKEN)
    held = judging(Toy(), entry(scenario=scenario), today=late)
    assert (states(held), held.exit_code) == (["expired"], BROKEN)


@pytest.mark.slow
def test_the_last_day_is_part_of_the_time(judging, scenario):
    assert states(judging(Strangers(), entry(scenario=scenario), today=date(2026, 12, 31))) == [
        "known"
    ]


@pytest.mark.slow
def test_an_entry_of_another_version_is_unused_and_fails_the_gate(judging):
    verdict = judging(Toy(), entry(version="9.9"))
    assert (states(verdict), verdict.exit_code) == (["unused"], BROKEN)


@pytest.mark.slow
def test_an_entry_whose_scenario_the_target_refuses_is_unused(judging, tmp_path):
    other = write_scenario(
        replace(TWO, config={**TWO.config, "prefix_caching": True}), tmp_path, "ALL-R03"
    )
    verdict = judging(NoCaching(), entry(scenario=other.name))
    assert (states(verdict), verdict.exit_code) == (["unused"], BROKEN)
    assert "$.config.prefix_caching" in verdict.deviations[0].says


@pytest.mark.slow
def test_entries_of_rules_that_are_not_judged_are_left_alone(judging):
    verdict = judging(Toy(), entry(version="9.9"), rules="SPY-R22")
    assert (verdict.deviations, verdict.exit_code) == ((), CONFORMS)


@pytest.mark.slow
def test_a_scenario_that_breaks_another_rule_first_is_a_finding(judging, scenario):
    verdict = judging(
        Strangers(), entry(rule="SPY-R22", scenario=scenario), rules="ALL-R03 SPY-R22"
    )
    assert states(verdict) == ["passes"]
    assert {finding.rule for finding in verdict.findings} == {"ALL-R03"}
    assert verdict.findings[0].engine == "deviations"
    assert read_scenario(Path(verdict.findings[0].scenario)).requests == TWO.requests


def test_a_failure_of_another_shape_is_not_covered(tmp_path, scenario):
    deviations = reading(tmp_path, entry(scenario=scenario))
    deviations.begin("toy", "sound")
    twice = Broken("ALL-R03", 1, "r1 is twice in 3 lists")
    deviations.replayed(0, [[twice]])
    assert deviations.in_run()([twice._replace(message="r0 is twice in 2 lists")], TWO) == []
    for other in (Broken("ALL-R03", 7, "r0 is lost"), Broken("ALL-R04", 7, twice.message)):
        assert deviations.in_run()([other], TWO) == [other]


def test_what_breaks_beside_a_known_failure_is_new_unless_it_did_so_before(tmp_path, scenario):
    deviations = reading(tmp_path, entry(scenario=scenario))
    deviations.begin("toy", "sound")
    known, beside = Broken("ALL-R03", 1, "r0 is lost"), Broken("SPY-R22", 1, "r0 has no token")
    other = Broken("SPY-R09", 1, "r0 is ragged")
    deviations.replayed(0, [[known, beside]])
    assert deviations.in_run()([known, beside], TWO) == []
    assert deviations.in_run()([known, other], TWO) == [other]
    assert deviations.in_run()([beside], TWO) == [beside]


def test_what_breaks_after_a_known_failure_is_known_as_far_as_it_did_so_before(tmp_path, scenario):
    deviations = reading(tmp_path, entry(scenario=scenario))
    deviations.begin("toy", "sound")
    known, later = Broken("ALL-R03", 1, "r0 is lost"), Broken("ALL-R10", 4, "no token in 3 steps")
    deviations.replayed(0, [[known], [later]])
    run, other_run = deviations.in_run(), deviations.in_run()
    assert run([known], TWO) == []
    assert run([later], TWO) == []
    assert run([Broken("ALL-R06", 9, "unfinished")], TWO) != []
    assert other_run([later], TWO) == [later]  # nothing known has broken before


def test_an_entry_for_what_follows_needs_not_be_there_and_fails_nothing(tmp_path, scenario):
    entries = [entry(scenario=scenario), entry(scenario=scenario, rule="SPY-R22")]
    deviations = reading(tmp_path, *entries)
    deviations.begin("toy", "sound")
    leak, later = Broken("ALL-R03", 1, "r0 is lost"), Broken("SPY-R22", 4, "r1 has no token")
    for number in (0, 1):
        deviations.replayed(number, [[leak], [later]])
    deviations.replayed_all()
    _, follows = deviations.judged(["ALL-R03", "SPY-R22"], {})
    says = "step 4: r1 has no token; it follows from ALL-R03 (known), and needs no entry"
    assert (follows.state, follows.says, follows.fails) == ("known", says, False)


@pytest.mark.parametrize(
    ("given", "is_it"),
    [
        ("vllm 0.33.0", True),
        ("0.33.0", True),
        ("0.33", True),
        ("Capped 0.33.0", True),
        ("0.33.1", False),
        ("sendnn-inference 0.33.0", False),
    ],
)
def test_a_version_is_compared_as_a_version(given, is_it):
    assert is_version(given, "Capped", "vllm 0.33.0") == is_it


def test_a_version_that_is_a_word_is_compared_as_a_word():
    assert is_version("sound", "toy", "sound")
    assert not is_version("sound", "toy", "documented")
    assert not is_version("1.0", "toy", "")


def test_what_was_never_at_stake_is_not_met(tmp_path):
    deviations = reading(tmp_path, entry(version="sound"))
    deviations.begin("toy", "sound")
    [judged] = deviations.judged(["ALL-R03"], {})
    assert isinstance(judged, Deviation)
    assert (judged.state, judged.fails) == ("not_met", False)


def test_an_interrupted_gate_says_nothing_of_entries_that_it_did_not_reach(gate, tmp_path):
    def interrupt(event):
        if isinstance(event, Progress):
            raise KeyboardInterrupt

    known = reading(tmp_path, entry(version="sound"))
    verdict = judge(gate(Toy(), "ALL-R03", deviations=known, report=interrupt))
    assert verdict.exit_code == INCONCLUSIVE


DATE = "valid: a date such as until = 2027-06-30"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("known = 3", "$.known: Expected `array`, got `int`"),
        ("[[known]]", "$.known[0]: Object missing required field `rule`"),
        (
            entry(version="1", until="30.06.2027"),
            "$.known[0].until: '30.06.2027' is not a date; " + DATE,
        ),
        (
            '[[known]]\nrule = "ALL-R03"\nreason = "x"\nuntil = 2027',
            "$.known[0].until: '2027' is not a date; " + DATE,
        ),
        (
            "[[known]]\nuntil = 30.06.2027",
            "(at line 2, column 14): 'until = 30.06.2027'; " + DATE,
        ),
        (
            "[[known]]\nuntil = 2027-02-30",
            "(at line 2, column 9): 'until = 2027-02-30'; " + DATE,
        ),
        ("[[known]]\nrule = x", "(at line 2, column 8): 'rule = x'"),
        (entry(version="1", reason=""), "$.known[0].reason: Expected `str` of length >= 1"),
        (entry(version=" "), "$.known[0].version: ' '; valid: a version"),
        (entry(version="1", x=1), "$.known[0]: Object contains unknown field `x`"),
        (entry(), "$.known[0]: neither is given; valid: either scenario or version"),
        (entry(version="1", scenario="a"), "$.known[0]: both are given"),
        (entry(version="1", rule="X"), "$.known[0].rule: 'X' is not a rule of spyre"),
        (entry(scenario="nix.json"), "$.known[0].scenario: "),
        ("x = ", "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error_with_the_place(tmp_path, text, says):
    with pytest.raises(FileError) as refused:
        reading(tmp_path, text)
    message = str(refused.value)
    assert says in message
    assert message.startswith(str(tmp_path / "known.toml"))
    assert "\n" not in message


def test_a_scenario_of_another_system_is_refused(tmp_path):
    vllm = Scenario(system="vllm", revision="documented", config={}, requests=TWO.requests)
    name = write_scenario(vllm, tmp_path, "ALL-R03").name
    with pytest.raises(FileError, match="belongs to vllm, but the gate judges spyre"):
        reading(tmp_path, entry(scenario=name))


@pytest.mark.slow
def test_the_report_says_what_is_out_of_date_and_the_command_exits_with_1(
    run, tmp_path, monkeypatch
):
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 0, 0, 0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known.toml").write_text(entry(version="9.9", rule="SPY-R22"))
    words = ("--rule", "SPY-R22", "--profile", "quick", "--deviations", "known.toml")
    result = run("gate", "model", *words)
    assert result.code == BROKEN
    unused = "OUT OF DATE    deviation of SPY-R22 (9.9) unused: schedproof model of spyre reports"
    assert unused in result.out
    assert "1 deviation out of date" in result.out


@pytest.mark.slow
def test_every_report_fails_for_what_is_out_of_date(run, tmp_path, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 0, 0, 0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "known.toml").write_text(entry(version="9.9", rule="SPY-R22"))
    reports = ("--junit", "v.xml", "--sarif", "v.sarif", "--github")
    words = ("--rule", "SPY-R22", "--profile", "quick", "--deviations", "known.toml")
    result = run("gate", "model", *words, *reports)
    assert "::error title=deviation of SPY-R22 (9.9)::unused: " in result.out
    assert "deviation of SPY\\-R22" in (tmp_path / "summary.md").read_text()
    [suite] = ElementTree.parse(tmp_path / "v.xml").getroot()
    assert suite.attrib["failures"] == "1"
    [invocation] = json.loads((tmp_path / "v.sarif").read_text())["runs"][0]["invocations"]
    [reported] = invocation["toolExecutionNotifications"]
    assert reported["message"]["text"].startswith("deviation of SPY-R22 (9.9) unused: ")


class StrangersThenSilence(Strangers):
    """After strangers have waited twice no request is given a token (against SPY-R22)."""

    seen = 0

    def start(self, system, revision, config):
        self.seen = 0
        return super().start(system, revision, config)

    def bend(self, step):
        super().bend(step)
        self.seen += "stranger" in step["waiting"]
        if self.seen > 2 and step["kind"] == "decode":
            step["emitted"] = {}


@pytest.mark.slow
def test_a_run_goes_on_past_what_is_known_and_the_replay_asks_for_the_new_rule_only(
    gate, tmp_path, monkeypatch, scenario
):
    monkeypatch.setattr(probing, "SCALES", ("small",))
    known = reading(tmp_path, entry(scenario=scenario))
    judged = gate(StrangersThenSilence(), "ALL-R03 SPY-R22", deviations=known, examples=30)
    verdict = judge(judged)
    assert states(verdict) == ["known"]
    assert {finding.rule for finding in verdict.findings} == {"SPY-R22"}
    found = [event for event in gate.events if isinstance(event, Found)]  # type: ignore[attr-defined]
    assert found[0].replay.endswith(" --rule SPY-R22")
    again = replay(StrangersThenSilence(), found[0].scenario, select(RULES, ["SPY-R22"]))
    assert again.broken[0].step == found[0].finding.step


BY_DESIGN = '[[by_design]]\nrule = "{}"\nreason = "our queue goes by deadline"\n'


def test_a_rule_that_is_broken_by_design_is_read_with_its_reason(tmp_path):
    known = reading(tmp_path, BY_DESIGN.format("SPY-R53"), BY_DESIGN.format("SPY-R4*"))
    assert known.by_design["SPY-R53"] == "by design: our queue goes by deadline"
    assert {"SPY-R42", "SPY-R47"} <= known.by_design.keys()
    assert known.entries == ()


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("SPY-R999", "$.by_design[0].rule: no rule 'SPY-R999'"),
        ("FOO-*", "$.by_design[0].rule: no rule matches 'FOO-*'"),
        ("ALL-R01", "$.by_design[0].rule: ALL-R01: cannot be excluded"),
        (",", "$.by_design[0].rule: ',' names no rule"),
    ],
)
def test_what_cannot_be_by_design_is_named(tmp_path, rule, says):
    with pytest.raises(FileError) as error:
        reading(tmp_path, BY_DESIGN.format(rule))
    assert says in str(error.value)


def test_a_rule_is_known_or_by_design(tmp_path):
    with pytest.raises(
        FileError, match=r"\$\.known\[0\]\.rule: ALL-R03 is also in \[\[by_design\]\]"
    ):
        reading(tmp_path, entry(version="1"), BY_DESIGN.format("ALL-R03"))
