"""`schedproof explore`: what it prints, writes and exits with, and what it does not take."""

import json
import re
from pathlib import Path

import pytest

from schedproof.gate.cli import explore as explore_command
from schedproof.gate.explore.explorer import chosen_scopes, read_limits
from schedproof.gate.explore.report import _limits
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.solver.spyre.space import SCOPES
from schedproof.spec.systems import SYSTEMS

ONE = ["--scope", "lengths", "--requests", "1", "--limits", "12"]
BROKEN = [
    *("--revision", "documented", "--scope", "lengths", "--requests", "2"),
    *("--limits", "6", "--rule", "SPY-R07"),
]

pytestmark = pytest.mark.usefixtures("working_folder")


def test_what_is_explored_to_the_end_without_a_finding_exits_0(run):
    result = run("explore", *ONE, "--verbose")
    assert (result.code, result.err) == (0, ""), result
    lines = result.out.splitlines()
    assert lines[0] == "explore spyre sound, by configuration and limit"
    assert lines[1].startswith("sound lengths, 1 requests, limit 12: prompts up to 9, ")
    assert "; everything, depth " in lines[1]
    assert "held          ALL-R01  never crashes (exercised in 1 configuration)" in lines
    assert any(line.startswith("not exercised SPY-R22 ") for line in lines)
    assert " held, " in lines[-1]
    assert " not exercised; " in lines[-1]
    assert not Path("schedproof-out").exists()


def test_rules_that_hold_and_rules_without_a_case_have_a_line_each(run):
    lines = run("explore", *ONE).out.splitlines()
    assert "held          12 rules (--verbose lists them)" in lines
    assert any(re.match(r"not exercised \w+-\w+, ", line) for line in lines)
    assert len(lines) == 5, lines


@pytest.mark.slow
def test_a_counterexample_is_printed_written_and_confirmed_by_a_replay(run):
    result = run("explore", *BROKEN, "--json", "covered.json")
    assert (result.code, result.err) == (1, ""), result
    lines = result.out.splitlines()
    assert any(line.startswith("BROKEN SPY-R07 ") for line in lines)
    assert "documented lengths at limit 6" in next(
        line for line in lines if line.startswith("BROKEN        SPY-R07")
    )
    [file] = Path("schedproof-out").iterdir()
    assert read_scenario(file).config["max_batch_tkv"] == 6
    [replay] = [line for line in lines if line.strip().startswith("replay:")]
    command = replay.split()
    assert command[1:3] == ["schedproof", "replay"]
    again = run(*command[2:])
    assert again.code == 1
    assert "SPY-R07" in again.out

    covered = json.loads(Path("covered.json").read_bytes())
    assert covered["format"] == "schedproof/explored@1"
    assert covered["rules"] == {"SPY-R07": {"verdict": "BROKEN"}}
    assert not covered["unfinished"]
    [part] = covered["parts"]
    assert part["scope"]["limits"] == [6]
    assert part["complete"] is True
    assert part["states"] == part["states_by_limit"]["6"] == part["different"]
    assert f"{part['states']:,} states, {part['transitions']:,} transitions" in lines[-1]


@pytest.mark.slow
def test_without_reductions_there_is_more_and_the_verdict_is_the_same(run):
    moves = []
    for words in ([], ["--full"]):
        result = run("explore", *BROKEN, "--json", "covered.json", *words)
        assert result.code == 1
        [part] = json.loads(Path("covered.json").read_bytes())["parts"]
        moves.append(part["transitions"])
    assert moves[0] < moves[1]


@pytest.mark.slow
def test_a_chosen_rule_that_is_never_at_stake_is_inconclusive(run):
    result = run("explore", *ONE, "--rule", "SPY-R22")
    assert result.code == 3, result
    assert "not exercised SPY-R22" in result.out
    assert run("explore", *ONE, "--rule", "SPY-R04").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--time-limit", "1"], "the time limit was reached"),
        (["--memory-limit", "64"], "the memory limit of 64 MB was reached"),
    ],
)
def test_a_limit_that_is_reached_is_inconclusive_and_says_what_is_left(run, words, why):
    large = ["--scope", "lengths", "--limits", "12", "--rule", "SPY-R22", "--rule", "SPY-R04"]
    result = run("explore", *large, *words)
    assert result.code == 3, result
    assert f"; {why}, " in result.out
    assert " states left open, depth " in result.out
    assert "inconclusive  SPY-R22  one token per decoding request: not everything" in result.out
    assert result.out.splitlines()[-1] == (f"left out, {why}: sound lengths, 4 requests, limit 12")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--deepest", "3"], "paths were cut"),
        (["--order", "random", "--walks", "5", "--seed", "1"], "sampled"),
    ],
)
def test_what_is_cut_or_sampled_proves_nothing(run, words, why):
    result = run("explore", *ONE, *words)
    assert result.code == 3, result
    assert "\nheld " not in result.out
    assert result.out.endswith(f"left out, {why}: sound lengths, 1 requests, limit 12\n")


@pytest.mark.slow
def test_what_was_put_by_is_taken_up_again(run):
    words = [*BROKEN, "--checkpoint", "later"]
    whole = run("explore", *BROKEN)
    for _ in range(2):
        result = run("explore", *words)
        assert result.code == 1, result
        count = result.out.splitlines()[-1].rpartition(";")[2].split(",")[:4]
        assert count[:2] == whole.out.splitlines()[-1].rpartition(";")[2].split(",")[:2]
    assert len([*Path("later").iterdir()]) == 1


@pytest.mark.slow
def test_several_scopes_and_parts_are_told_one_by_one(run):
    result = run(
        *("explore", "--scope", "lengths", "--scope", "sequential", "--requests", "1"),
        *("--limits", "6-13", "--rule", "SPY-R04", "--jobs", "2"),
    )
    assert result.code == 0, result
    starts = sorted(line.partition(":")[0] for line in result.out.splitlines()[1:5])
    assert starts == [
        "sound lengths, 1 requests, limits 10-13",
        "sound lengths, 1 requests, limits 6-9",
        "sound sequential, 1 requests, limits 10-13",
        "sound sequential, 1 requests, limits 6-9",
    ]
    assert "held          SPY-R04  number of chunks (exercised in 15 configurations)" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--scope", "x"],
            "--scope: 'x' is not a scope of revision sound; valid: lengths, aborts, ",
        ),
        (
            ["--scope", "pool", "--revision", "2.1.2"],
            "--scope: 'pool' is not a scope of revision 2.1.2; valid: lengths, ",
        ),
        (["--requests", "0"], "--requests: 0; valid: 1 to 6"),
        (["--requests", "7"], "--requests: 7; valid: 1 to 6"),
        (["--requests", "two"], "Invalid value for '--requests'"),
        (["--limits", "a"], "--limits: 'a'; valid: up to 1000 numbers of tokens below "),
        (["--limits", ""], "--limits: ''; valid: up to 1000 numbers of tokens below "),
        (["--limits", "-6"], "--limits: '-6'; valid: up to 1000 numbers of tokens below "),
        (["--limits", "6,,7"], "--limits: '6,,7'; valid: up to 1000 numbers of tokens below "),
        (["--limits", "9-6"], "--limits: '9-6'; valid: 1 to 1000 limits of at least 1"),
        (["--limits", "0"], "--limits: '0'; valid: 1 to 1000 limits of at least 1"),
        (["--limits", "1-1001"], "--limits: '1-1001'; valid: 1 to 1000 limits"),
        (["--aborts", "x"], "--aborts: 'x'; valid: none, alone, any"),
        (["--order", "x"], "--order: 'x'; valid: breadth, depth, deepening, random"),
        (["--deepest", "0"], "--deepest: 0; valid: at least 1"),
        (["--deepest", "-1"], "--deepest: -1; valid: at least 1"),
        (["--walks", "0"], "--walks: 0; valid: at least 1"),
        (["--seed", "-1"], "--seed: -1; valid: at least 0"),
        (["--jobs", "0"], "--jobs: 0; valid: at least 1"),
        (["--time-limit", "0"], "--time-limit: 0; valid: at least 1"),
        (["--time-limit", "nan"], "--time-limit: nan; valid: at least 1"),
        (["--memory-limit", "1"], "--memory-limit: 1; valid: at least 64"),
        (["--rule", "SPY-R99"], "no rule 'SPY-R99'"),
        (["--rule", " , "], "--rule: ' , ' names no rule; `schedproof rules` lists the rules"),
        (["--rule", "SPY-R01"], "--rule: SPY-R01 has no predicate: "),
        (
            ["--rule", "SPY-R52", "--revision", "documented"],
            "--rule: SPY-R52 does not apply to revision documented; it applies to 2.5.2",
        ),
        (
            ["--rule", "ALL-R07", "--revision", "2.5.2"],
            "--rule: ALL-R07 compares a target with the model",
        ),
        (["--revision", "9"], "--revision: '9' is not a revision of spyre; valid: sound, docum"),
        (["--json", "nowhere/covered.json"], "--json: nowhere/covered.json: the folder nowhere"),
        (["--json", "."], "--json: . is a folder; valid: a file"),
        (["--out", "taken"], "--out: taken: taken is not a folder"),
        (["--checkpoint", "taken"], "--checkpoint: taken"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, monkeypatch, words, message):
    monkeypatch.setattr(explore_command, "run_exploration", lambda *_: pytest.fail("it explores"))
    Path("taken").write_text("")
    result = run("explore", *words)
    assert (result.code, result.out) == (2, ""), result
    assert result.err.startswith("schedproof: ")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_limits_are_read_in_any_order_each_once():
    assert read_limits("20,6-8, 7,12") == (6, 7, 8, 12, 20)
    assert read_limits("1-1000") == tuple(range(1, 1001))


def test_limits_are_told_as_ranges():
    assert _limits((6, 7, 8, 12)) == "limits 6-8, 12"
    assert _limits({40}) == "limit 40"


def test_without_a_name_every_scope_of_the_revision_is_explored():
    names = {scope.name for scope in chosen_scopes(None, "spyre", "2.1.2")}
    assert "large pool" in names
    assert names.isdisjoint({"pool", "small cache", "no pausing"})
    assert [scope.name for scope in chosen_scopes(["cache", "pool"], "spyre", "sound")] == [
        "cache",
        "pool",
    ]
    together = {
        scope
        for name in ("sound", "2.1.2", "2.5.2")
        for scope in chosen_scopes(None, "spyre", name)
    }
    assert together == set(SCOPES)


@pytest.mark.slow
def test_another_system_is_explored_by_its_own_limits(run):
    words = ["--system", "vllm", "--scope", "slots", "--requests", "2", "--limits", "3-4"]
    result = run("explore", *words, "--rule", "V1-R09", "--rule", "V1CP-R13")
    lines = result.out.splitlines()
    assert lines[0] == "explore vllm documented, by configuration and pool"
    assert lines[1].startswith("documented slots, 2 requests, pools 3-4: two slots; ")
    assert "held          V1CP-R13 FCFS victim (exercised in 2 configurations)" in lines
    # A rule that was asked for and never exercised is no pass.
    assert any(line.startswith("not exercised V1-R09 ") for line in lines)
    assert result.code == 3, result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--system", "x"], f"--system: 'x' is not a system; valid: {', '.join(SYSTEMS)}"),
        (
            ["--system", "generic"],
            "--system: generic has no scopes to explore; valid: spyre, vllm, nano_vllm, llmservin",
        ),
        (["--system", "vllm", "--scope", "pool"], "'pool' is not a scope of revision documented; "),
        (["--system", "vllm", "--revision", "2.5.2"], "--revision: '2.5.2' is not a revision of"),
        (["--system", "vllm", "--rule", "SPY-R04"], "no rule 'SPY-R04'"),
    ],
)
def test_what_another_system_does_not_have_is_one_line_and_exit_2(run, words, message):
    result = run("explore", *words)
    assert (result.code, result.out) == (2, ""), result
    assert message in result.err
