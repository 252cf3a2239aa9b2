"""`schedproof corpus` as a user meets it."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.folder import entries, scenario_named
from schedproof.gate.corpus.replay import with_expectation
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging.rule_choice import use_rules

from ..corpus_build import calm, crowd, kept, written

CRASHES = """
from schedproof.model.target import ModelTarget

class Crashes(ModelTarget):
    def step(self):
        raise ValueError("no")
"""


def test_a_failure_is_made_small_and_kept_once(run, tmp_path):
    file = written(tmp_path / "found.json", crowd(prompt=9, requests=4))
    corpus = tmp_path / "corpus"
    first = run("corpus", "add", str(file), "--corpus", str(corpus), "--found", "2026-01-31")
    assert first.code == 0
    [entry] = entries(corpus)
    assert entry.rule == "NAN-R40"
    assert entry.shape == "NAN-R40: # sequences run, but max_num_seqs is #"
    assert entry.origin.found == "2026-01-31"
    assert entry.origin.found_on.version == "0.2.0"
    assert len(entry.scenario.requests) == 3
    assert sum(request.prompt_len for request in entry.scenario.requests) < 27
    assert entry.scenario.expect is not None
    assert entry.scenario.expect.holds
    assert f"added {entry.path}" in first.out
    assert first.out.count("\n") == 1
    again = run("corpus", "add", str(file), "--corpus", str(corpus))
    assert "already exists" in again.out
    assert len(entries(corpus)) == 1


def test_a_rule_named_in_full_must_be_exercised(run, tmp_path):
    for rule in ("NAN-R14", "NAN-R40"):
        kept(tmp_path, calm(), rule=rule)
    words = ("corpus", "run", "--corpus", str(tmp_path))
    assert "1 as expected, 1 not exercised" in run(*words).out
    codes = {rules: run(*words, "--rule", rules).code for rules in ("NAN-R14", "NAN-R14,NAN-R40")}
    assert codes == {"NAN-R14": 0, "NAN-R14,NAN-R40": 3}
    assert run(*words, "--rule", "NAN-*").code == 0


def test_a_finding_is_kept_by_the_rule_that_it_was_written_for(run, tmp_path):
    """SPY-R47 breaks a step before; the entry is about SPY-R07 all the same."""
    scenario = replace(
        scenario_named("late-arrivals-before-913"), expect=None, origin={"rule": "SPY-R07"}
    )
    file = written(tmp_path / "found.json", scenario)
    corpus = tmp_path / "corpus"
    words = ("--corpus", str(corpus), "--no-shrink", "--expect", "violates")
    assert run("corpus", "add", str(file), *words).code == 0
    [entry] = entries(corpus)
    assert entry.rule == "SPY-R07"
    assert entry.scenario.expect is not None
    assert entry.scenario.expect.violates == ("SPY-R07",)


def test_a_file_that_does_not_fit_does_not_keep_the_others_out(run, tmp_path):
    bad, worse = tmp_path / "bad.json", tmp_path / "worse.json"
    bad.write_text("{")
    good = written(tmp_path / "good.json", crowd())
    corpus = tmp_path / "corpus"
    files = [str(file) for file in (bad, good, worse)]
    reported = run("corpus", "add", *files, "--corpus", str(corpus), "--no-shrink")
    assert reported.code == 2
    assert [entry.rule for entry in entries(corpus)] == ["NAN-R40"]
    assert f"2 of 3 files left out: {bad}, {worse}" in reported.err
    assert f"{bad}: not JSON" in reported.err


def test_a_refusal_at_the_door_that_breaks_a_rule_can_be_kept(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shut.py").write_text(SHUT)
    written(tmp_path / "found.json", crowd(requests=1))
    words = ("--target", "shut:Shut", "--corpus", "corpus")
    reported = run("corpus", "add", "found.json", *words)
    assert (reported.code, reported.err) == (0, "")
    assert [entry.rule for entry in entries(tmp_path / "corpus")] == ["ALL-R12"]


SHUT = """
from schedproof.model.target import ModelTarget

class Shut(ModelTarget):
    def add(self, request):
        return {"ok": False, "error": "rejected", "message": "closed"}
"""


def test_a_larger_one_of_the_same_failure_gives_way(run, tmp_path):
    corpus = ("--corpus", str(tmp_path / "corpus"), "--no-shrink")
    large = written(tmp_path / "large.json", crowd(prompt=9))
    small = written(tmp_path / "small.json", crowd(prompt=2))
    run("corpus", "add", str(large), *corpus)
    [before] = entries(tmp_path / "corpus")
    reported = run("corpus", "add", str(small), *corpus)
    assert f"instead of {before.path.name}" in reported.out
    [after] = entries(tmp_path / "corpus")
    assert after.scenario.requests == read_scenario(small).requests
    back = run("corpus", "add", str(large), *corpus)
    assert f"not added, because {after.path} has the same failure, is no larger" in back.out
    assert entries(tmp_path / "corpus") == [after]


def test_an_entry_that_expects_something_else_does_not_give_way(run, tmp_path):
    corpus = ("--corpus", str(tmp_path / "corpus"), "--no-shrink")
    large = written(tmp_path / "large.json", crowd(prompt=9))
    small = written(tmp_path / "small.json", crowd(prompt=2))
    run("corpus", "add", str(large), *corpus, "--expect", "violates")
    reported = run("corpus", "add", str(small), *corpus)
    assert "instead of" not in reported.out
    assert len(entries(tmp_path / "corpus")) == 2


def test_what_breaks_nothing_is_a_witness_of_the_rule_that_is_named(run, tmp_path):
    file, corpus = written(tmp_path / "calm.json", calm()), tmp_path / "corpus"
    refused = run("corpus", "add", str(file), "--corpus", str(corpus))
    assert refused.code == 2
    assert "breaks no rule on model; valid as a witness: name its rule with --rule" in refused.err
    beside = run("corpus", "add", str(file), "--corpus", str(corpus), "--rule", "NAN-R19")
    assert "NAN-R19 is never exercised on model, so this is not a witness" in beside.err
    reported = run("corpus", "add", str(file), "--corpus", str(corpus), "--rule", "NAN-R14")
    assert (reported.code, "a witness" in reported.out) == (0, True)
    [entry] = entries(corpus)
    assert (entry.rule, entry.shape) == ("NAN-R14", "")
    violates = run("corpus", "add", str(file), "--corpus", str(corpus), "--expect", "violates")
    assert "valid: --expect holds" in violates.err


def test_steps_that_are_expected_are_kept_or_nothing_is(run, tmp_path):
    steps = ({"step": 0, "kind": "prefill"},)
    expect = replace(with_expectation(crowd(), None).expect, holds=None, steps=steps)  # type: ignore[type-var]
    file = written(tmp_path / "steps.json", replace(crowd(), expect=expect))
    corpus = ("--corpus", str(tmp_path / "corpus"))
    assert "$.expect.steps" in run("corpus", "add", str(file), *corpus).err
    assert run("corpus", "add", str(file), *corpus, "--no-shrink").code == 0
    [entry] = entries(tmp_path / "corpus")
    assert entry.scenario.expect is not None
    assert entry.scenario.expect.steps == steps
    result = run("corpus", "minimize", str(entry.path))
    assert "expects certain steps" in result.out
    assert entries(tmp_path / "corpus") == [entry]


def test_run_says_what_is_as_expected_and_explains_what_is_not(run, tmp_path):
    kept(tmp_path, calm(), rule="NAN-R14")
    assert run("corpus", "run", "--corpus", str(tmp_path)).code == 0
    path = kept(tmp_path, crowd())
    reported = run("corpus", "run", "--corpus", str(tmp_path))
    assert reported.code == 1
    assert (
        f"NOT AS EXPECTED {path}: the run breaks NAN-R40; expected that every rule holds"
        in reported.out
    )
    assert f"replay:   schedproof replay {path}" in reported.out
    assert reported.out.endswith("1 as expected, 1 not as expected\n")
    chosen = run("corpus", "run", "--corpus", str(tmp_path), "--rule", "NAN-R14")
    assert (chosen.code, chosen.out.splitlines()[-1]) == (0, "1 as expected")


def test_a_run_that_exercises_nothing_is_inconclusive(run, tmp_path):
    tmp_path.joinpath("empty").mkdir()
    assert run("corpus", "run", "--corpus", str(tmp_path / "empty")).code == 3
    kept(tmp_path, calm(), rule="NAN-R19")
    reported = run("corpus", "run", "--corpus", str(tmp_path))
    assert reported.code == 3
    assert "NAN-R19 is never exercised on this target" in reported.out


def test_the_list_is_one_line_and_the_shape_for_each(run, tmp_path):
    path = kept(
        tmp_path, with_expectation(crowd(), ["NAN-R40"]), shape="NAN-R40: # \x1b[31mrun\n[red]"
    )
    out = tmp_path / "list.txt"
    reported = run("corpus", "list", "--corpus", str(tmp_path), "--json", str(out))
    assert reported.out.splitlines() == [
        f"{path}: NAN-R40, nano_vllm 0.2.0, 3 requests, violates NAN-R40, found on a model 1, "
        "2026-01-31",
        "    NAN-R40: #  [31mrun [red]",
        "1 entry",
    ]
    listed = json.loads(out.read_text())
    assert listed["format"] == "schedproof/corpus@1"
    assert listed["entries"][0]["requests"] == 3


def test_a_list_is_not_written_into_the_corpus(run, tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    before = path.read_bytes()
    for file in (path, tmp_path / "list.json"):
        reported = run("corpus", "list", "--corpus", str(tmp_path), "--json", str(file))
        assert (reported.code, reported.out) == (2, "")
        assert reported.err.startswith(f"schedproof: --json: {file}: a .json file in the corpus wo")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == {path: before}


def test_minimize_rewrites_an_entry_under_its_new_name(run, tmp_path):
    path = kept(tmp_path, with_expectation(crowd(prompt=9, requests=4), ["NAN-R40"]))
    reported = run("corpus", "minimize", str(path))
    assert reported.code == 0
    [entry] = entries(tmp_path)
    assert entry.path != path
    assert len(entry.scenario.requests) == 3
    assert entry.scenario.expect is not None
    assert entry.scenario.expect.violates == ("NAN-R40",)
    assert "4 requests" in reported.out
    assert "already minimal" in run("corpus", "minimize", str(entry.path)).out


def test_minimize_leaves_what_breaks_nothing_as_it_is(run, tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    reported = run("corpus", "minimize", str(path))
    assert reported.code == 3
    words = "not changed, because it does not break NAN-R14 on model (found on a model 1)"
    assert words in reported.out


@pytest.mark.parametrize(
    ("rule", "shape", "words"),
    [
        ("NAN-R14", "", "it does not break NAN-R14 on toys:Crashes (found on a model 1), but ALL-"),
        (
            "ALL-R01",
            "ALL-R01: boom",
            "it has another failure on toys:Crashes: the scheduler raised",
        ),
    ],
)
def test_minimize_does_not_replace_an_entry_by_another_failure(
    run, tmp_path, monkeypatch, rule, shape, words
):
    monkeypatch.chdir(tmp_path)
    Path("toys.py").write_text(CRASHES, encoding="utf-8")
    path = kept(tmp_path / "c", crowd(), rule=rule, shape=shape)
    before = path.read_bytes()
    reported = run("corpus", "minimize", str(path), "--target", "toys:Crashes")
    assert reported.code == 3
    assert f"{path}: not changed, because {words}" in reported.out
    assert [file.read_bytes() for file in path.parent.iterdir()] == [before]


def test_replay_gives_no_verdict_if_the_target_refuses_a_request(run, tmp_path):
    path = written(tmp_path / "s.json", with_expectation(crowd(prompt=900), ["NAN-R40"]))
    reported = run("replay", str(path))
    assert (reported.code, reported.out.splitlines()[-1][-10:]) == (3, "no verdict")


def test_verify_has_a_line_for_each_problem(run, tmp_path):
    good = kept(tmp_path, with_expectation(crowd(), ["NAN-R40"]))
    assert run("corpus", "verify", "--corpus", str(tmp_path)).code == 0
    good.rename(tmp_path / "b.json")
    kept(tmp_path, crowd(prompt=2))
    written(tmp_path / "c.json", calm())
    written(tmp_path / "d.json", replace(calm(), origin={"rule": "../NONE"}))
    tmp_path.joinpath("e.json").write_text("")
    reported = run("corpus", "verify", "--corpus", str(tmp_path))
    assert reported.code == 1
    lines = reported.out.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith(
        "not as expected: the run breaks NAN-R40; expected that every rule holds"
    )
    assert (
        f"b.json: the file's name does not match its rule and content; valid: {good.name}"
        in lines[1]
    )
    assert "c.json: $.origin.rule: nothing" in lines[2]
    assert "d.json: $.origin.rule: '../NONE' is not a rule of nano_vllm" in lines[3]
    assert "e.json: not JSON" in lines[4]
    assert lines[5] == "5 entries, 5 problems"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "none.json"), "none.json: cannot be read (No such file or directory)"),
        (("add", "x", "--expect", "no"), "--expect: 'no'; valid: holds, violates"),
        (("add", "x", "--found", "now"), "--found: 'now'; valid: a date, YYYY-MM-DD"),
        (("add", "x", "--rule", ","), "--rule: ',' names no rule"),
        (("run", "--rule", "NAN-R99"), "no rule 'NAN-R99'"),
        (("run", "--step-limit", "0"), "--step-limit: 0; valid: at least 0.1"),
        (("list",), "schedproof-corpus: there is no such folder"),
        (("export", "--as", "xml"), "--as: 'xml'; valid: pytest, json, upstream"),
        (
            ("export", "--as", "json", "--corpus", ".", "-o", "x.json"),
            "--out: x.json: a .json file in the corpus would be an entry; valid: another folder",
        ),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    reported = run("corpus", *words)
    assert (reported.code, reported.out, reported.err.count("\n")) == (2, "", 1)
    assert says in reported.err


def test_a_corpus_that_is_a_file_is_noticed_before_the_work(run, tmp_path):
    file = written(tmp_path / "a.json", crowd())
    reported = run("corpus", "add", str(file), "--corpus", str(file))
    assert reported.code == 2
    assert "is not a folder that can be written to" in reported.err
    assert read_scenario(file) == crowd()


@pytest.fixture
def ends_without_own_rules():
    yield
    use_rules(None)


@pytest.mark.usefixtures("ends_without_own_rules")
def test_an_entry_of_a_rule_of_ones_own_is_added_run_and_exported(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ours.py").write_text(OURS, encoding="utf-8")
    file = written(tmp_path / "found.json", crowd(prompt=9, requests=4))
    given = ("--rule", "OUR-R01", "--expect", "violates", "--extra-rules", "ours.py")
    assert run("corpus", "add", str(file), *given).code == 0
    for command in (("run",), ("verify",), ("prune",), ("export", "--as", "json")):
        assert run("corpus", *command, "--extra-rules", "ours.py").code == 0
    without = run("corpus", "run")
    assert (without.code, "OUR-R01 cannot be checked here" in without.out) == (3, True)
    [entry] = entries(Path("schedproof-corpus"))
    assert run("corpus", "minimize", str(entry.path), "--extra-rules", "ours.py").code == 0
    Path("pyproject.toml").write_text('[tool.schedproof]\nextra_rules = "ours.py"\n')
    assert "1 as expected" in run("corpus", "run").out


OURS = """
from schedproof import OwnRule

RULES = [
    OwnRule(
        id="OUR-R01", title="alone", statement="At most two requests run.", needs=["running"],
        broken=lambda history, step: "more than two" if len(step.running) > 2 else None,
        witness="A request runs.", exercised=lambda history, step: len(step.running) > 0,
    )
]
"""
