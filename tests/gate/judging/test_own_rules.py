"""A user's own rules: judged beside ours, found, replayed, and one line where they mean nothing."""

from pathlib import Path

import pytest

import schedproof
from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging.engines import not_deterministic
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.rule_choice import use_rules
from schedproof.gate.targets import probe as probing
from schedproof.model import own_code
from schedproof.properties.rules.predicate import RuleFault
from schedproof.spec.catalogue import load

from ...command_line import runner

RULE = """
from schedproof import OwnRule

def broken(history, step):
    return f"{{len(step.running)}} run" if len(step.running) > 2 else None

RULES = [
    OwnRule(
        id="OUR-R01",
        title="two at most",
        statement="At most two requests run.",
        needs=["running"],
        broken=broken,
        witness="Two requests run.",
        exercised=lambda history, step: len(step.running) == 2,
        {more}
    )
]
"""
ALONE = (
    "--system",
    "generic",
    "--rule",
    "OUR-R01",
    "--extra-rules",
    "ours.py",
    "--profile",
    "quick",
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(20, 10, 10, 200))
    yield
    use_rules(None)


@pytest.fixture
def run(monkeypatch, capfd):
    return runner(monkeypatch, capfd)


def ours(text):
    Path("ours.py").write_text(text, encoding="utf-8")
    return Path("ours.py")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_gate_finds_what_breaks_one_and_the_command_it_prints_does_so_again(run, jobs):
    ours(RULE.format(more=""))
    result = run("gate", *ALONE, "--jobs", jobs)
    assert result.code == 1
    assert "  rule:     At most two requests run." in result.out
    line = next(line for line in result.out.splitlines() if line.startswith("  replay:"))
    again = run(*line.split()[2:])
    assert again.code == 1
    assert "BROKEN OUR-R01 two at most" in again.out


@pytest.mark.slow
def test_one_that_holds_is_in_the_verdict_beside_the_others():
    file = ours(RULE.format(more="").replace("> 2", "> 99"))
    verdict = schedproof.judge("model", system="generic", extra_rules=file)
    statuses = {rule.id: rule.status for rule in verdict.rules}
    assert (statuses["OUR-R01"], statuses["GEN-R01"]) == ("held", "held")
    assert verdict.exit_code == 0


def test_a_search_that_ends_early_does_not_blame_the_target_alone(monkeypatch):
    assert "runs: the target is not deterministic" in str(not_deterministic(1, 2))
    monkeypatch.setattr("schedproof.gate.judging.engines.OWN_RULES", {"OUR-R01": None})
    words = "runs: a rule of your own or the target is not deterministic"
    assert words in str(not_deterministic(1, 2))


@pytest.mark.slow
def test_a_rule_whose_answer_changes_is_not_blamed_on_the_target_alone():
    once = "next(CALLS) == 40 and 'once' or None"
    text = RULE.format(more="").replace("return f", f"return {once}\n    return f")
    verdict = schedproof.judge(
        "model",
        system="generic",
        rules=["OUR-R01"],
        extra_rules=ours(f"import itertools\n{text}\nCALLS = itertools.count()\n"),
    )
    assert verdict.exit_code == 3
    assert "OUR-R01 or the target is not deterministic" in (verdict.fault or "")


@pytest.mark.parametrize(
    "change",
    ["history.config['max_num_seqs'] = 99", "history.live.clear()", "step.scheduled.clear()"],
)
def test_a_rule_that_changes_what_other_rules_read_is_named(change):
    text = RULE.format(more="").replace("    return f", f"    {change}\n    return f")
    with pytest.raises(RuleFault, match="OUR-R01 changes the history or the step"):
        schedproof.replay(
            schedproof.read_scenario("late-arrivals-before-961"), extra_rules=ours(text)
        )


def test_a_rule_may_return_a_subclass_of_str():
    text = RULE.format(more="").replace(
        "    return f", "    return type('S', (str,), {})('7') or f"
    )
    outcome = schedproof.replay(
        schedproof.read_scenario("late-arrivals-before-961"), extra_rules=ours(text)
    )
    assert [type(failure.message) for failure in outcome.broken] == [str]


def test_a_rule_may_need_fields_that_every_step_has():
    use_rules(ours(RULE.format(more="").replace('["running"]', '["kind", "scheduled", "running"]')))
    [rule] = [rule for rule in load("spyre") if rule.id == "OUR-R01"]
    assert rule.needs == ("running",)


def test_they_are_gone_with_the_next_call():
    use_rules(ours(RULE.format(more="")))
    assert "OUR-R01" in [rule.id for rule in load("spyre")]
    use_rules(None)
    assert "OUR-R01" not in [rule.id for rule in load("spyre")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RULES = 1", "ours.py: RULES is 1; valid: a list of schedproof.OwnRule"),
        ("RULES = []", "ours.py: RULES is []"),
        ("RULES = [3]", "ours.py: RULES[0]: 3; valid: a schedproof.OwnRule"),
        ("1 / 0", "ours.py: ZeroDivisionError: division by zero, line 1"),
        ("import sys\nsys.exit()", "ours.py: SystemExit: , line 2"),
        ("x = (", "ours.py: SyntaxError: '(' was never closed"),
        ("import nothing_there", "ours.py: ModuleNotFoundError: No module named 'nothing_there'"),
        (RULE.format(more="").replace("OUR-R01", "ours"), "ours.py: RULES[0] ('ours').id; valid"),
        (RULE.format(more="").replace("OUR-R01", "ALL-R01"), "('ALL-R01').id: this id is taken"),
        (RULE.format(more="") + "RULES += RULES", "RULES[1] ('OUR-R01').id: this id is taken"),
        (RULE.format(more="").replace("running", "runing"), "needs: 'runing'; valid: emitted"),
        (
            RULE.format(more="").replace('["running"]', "None"),
            "needs: None; valid: a list of emitted, tkv",
        ),
        (
            RULE.format(more="").replace('["running"]', "'running'"),
            "needs: 'running'; valid: a list of emitted, tkv",
        ),
        (RULE.format(more="").replace("broken=broken", "broken=3"), "broken: 3; valid: a function"),
        (RULE.format(more="").replace("two at most", " "), "title: ' '; valid: words"),
    ],
)
def test_a_file_that_has_no_rules_is_one_line(text, says):
    with pytest.raises(FileError) as error:
        use_rules(ours(text))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["none.py", "folder", "text.txt"])
def test_what_is_no_python_file_is_named(name):
    Path("folder").mkdir()
    Path("text.txt").write_text("RULES = []")
    with pytest.raises(FileError, match=rf"{name}: (no|not) .*; valid: a \.py file with RULES"):
        use_rules(Path(name))


def test_words_of_a_rule_are_printable_lines():
    ours(RULE.format(more='source="""a\n        page\x1b[31m\u202e""",'))
    use_rules(Path("ours.py"))
    assert next(rule for rule in load("generic") if rule.id == "OUR-R01").source == "a page [31m"


def test_a_file_of_rules_that_does_not_end_is_one_line(monkeypatch):
    monkeypatch.setattr(own_code, "LIMIT", 0.1)
    ours("while True: pass")
    with pytest.raises(FileError, match=r"ours\.py: EndlessCode: .* within 0\.1 s, line 1$"):
        use_rules(Path("ours.py"))


def test_a_file_of_rules_cannot_end_the_command_as_if_it_had_passed():
    ours("import os\nos._exit(0)")
    with pytest.raises(FileError, match=r"ours\.py: SystemExit: os\._exit\(0\), line 2$"):
        use_rules(Path("ours.py"))


DIVIDES = "return 1 / 0 if history.step else None", "OUR-R01 raised ZeroDivisionError"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says", "jobs"),
    [
        (*DIVIDES, "1"),
        (*DIVIDES, "2"),
        ("return 3", "OUR-R01 returns 3; valid: None or a sentence", "1"),
        ("raise SystemExit(0)", "OUR-R01 raised SystemExit: 0", "2"),
        ("while True: pass", "OUR-R01 raised EndlessCode: it did not end within 0.5 s", "1"),
    ],
)
def test_a_rule_that_cannot_be_asked_is_the_users_fault_and_no_verdict(
    run, words, says, jobs, monkeypatch
):
    monkeypatch.setattr(own_code, "LIMIT", 0.5)
    ours(RULE.format(more="").replace("return f", f"{words}\n    return f"))
    result = run("gate", *ALONE, "--jobs", jobs)
    assert result.code == 2
    assert result.err.startswith(f"schedproof: ours.py: {says}")
    assert result.err.count("\n") == 1
    assert "conforms" not in result.out
