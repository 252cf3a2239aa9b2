"""`[tool.schedproof]` on the command line: what a command takes from it, and what goes before."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets import probe as probing

from ...command_line import runner

TABLE = '[tool.schedproof]\ntarget = "model"\nsystem = "vllm"\nprofile = "quick"\n'
Said = Callable[[str], None]


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "quick", Profile(10, 0, 0, corpus_steps=0))
    return runner(monkeypatch, capfd)


@pytest.fixture
def said(run, tmp_path):
    return lambda more: (tmp_path / "pyproject.toml").write_text(TABLE + more) and None


@pytest.mark.slow
def test_a_gate_needs_no_word(run, said):
    said('exclude = ["V1-*", "V1CP-*"]\n')
    result = run("gate")
    assert result.code == 0, result
    assert "schedproof model of vllm documented" in result.out
    assert "excluded       V1-R09   head-of-line blocking: --exclude" in result.out


def test_the_command_line_goes_before(run, said):
    said("")
    assert "SPY-R07" in run("rules", "--system", "spyre").out
    assert "V1-R05" in run("rules").out
    assert run("rules", "SPY-R07").code == 0  # an id says which system it is of
    assert "--profile: 'x'; valid" in run("gate", "--profile", "x").err


def test_a_target_with_a_system_of_its_own_keeps_it(run, said):
    said('exclude = ["V1-R09"]\n')
    (Path.cwd() / "there").mkdir()
    result = run("gate", "nano-vllm", "--path", "there")
    assert "V1-R09" not in result.err  # which nano-vLLM does not have
    assert "there" in result.err


def test_the_help_names_each_default_once(run, said):
    said("")
    for command in ("doctor", "rules", "gate", "explore", "step"):
        text = " ".join(run(command, "--help").out.split())
        assert "required]" not in text
        assert not re.search(r"default: [^])]*[])] \[default", text), text


def test_the_help_shows_the_default_that_applies_in_the_folder(run, said):
    said("")
    target = "for a scenario: the target, named as for gate [default: model]"
    assert target in " ".join(run("show", "--help").out.split())
    gate = " ".join(run("gate", "--help").out.split())
    assert "system whose rules apply [default: vllm]" in gate
    assert "published behaviour to judge by (default: the target's own)" in gate
    result = run("corpus", "export", "--help")
    assert result.code == 0, result
    export = " ".join(result.out.split())
    assert "the tests of --as pytest [default: model]" in export


@pytest.mark.slow
def test_a_replay_of_the_model_names_it_beside_another_target(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.schedproof]\ntarget = "mine:Target"\n')
    result = run("replay", "late-arrivals-before-961", "--quiet", "--target", "model")
    assert result.code == 1
    assert "replay:   schedproof replay late-arrivals-before-961 --target model\n" in result.out
    assert "cannot import 'mine'" in run("replay", "late-arrivals-before-961").err


def test_a_corpus_run_on_the_model_names_it_beside_another_target(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.schedproof]\ntarget = "mine:Target"\n')
    sizes = {"block_size": 64, "chunk_size": 256, "max_num_seqs": 2, "max_model_len": 512}
    sent = [("r1", 3, 3), ("r2", 256, 2)]
    scenario = {
        "format": "schedproof/scenario@1",
        "system": "spyre",
        "config": {**sizes, "max_batch_tkv": 520},
        "revision": "documented",
        "requests": [
            {"id": name, "arrival": 0, "prompt": [[name, prompt]], "max_tokens": most}
            for name, prompt, most in sent
        ],
    }
    (tmp_path / "over.json").write_text(json.dumps(scenario))
    added = run("corpus", "add", "over.json", "--target", "model", "--no-shrink")
    assert added.code == 0, added
    out = run("corpus", "run", "--target", "model").out
    assert re.search(r"replay:   schedproof replay schedproof-corpus/\S+ --target model\n", out), (
        out
    )


def test_rules_of_another_system_are_no_part_of_a_replay(run, said):
    said('exclude = ["V1-R09"]\n')
    assert run("replay", "late-arrivals-before-961", "--quiet").code == 1


def test_the_corpus_is_that_of_the_project(run, said, tmp_path):
    (tmp_path / "cases").mkdir()
    said('corpus = "cases"\n')
    run("corpus", "add", "late-arrivals-before-961", "--no-shrink")
    assert len([*(tmp_path / "cases").glob("*.json")]) == 1
    assert "late-arrivals-before-961" not in run("corpus", "list").err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('colour = "red"\n', "pyproject.toml: tool.schedproof: Object contains unknown field"),
        ('exclude = ["V1-R999"]\n', "no rule 'V1-R999'"),
    ],
)
def test_what_means_nothing_is_said_by_every_command(run, said, more, says):
    said(more)
    result = run("gate")
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert result.err.count("\n") == 1


def test_an_unknown_profile_is_said(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.schedproof]\nprofile = "long"\n')
    assert "pyproject.toml: tool.schedproof.profile: 'long'; valid: quick" in run("rules").err


@pytest.mark.slow
def test_a_rule_that_the_command_line_names_is_asked_for_although_it_is_excluded(run, said):
    said('exclude = ["V1-R0*"]\n')
    result = run("gate", "--rule", "V1-R05", "--verbose")
    assert result.code == 0, result
    assert "held           V1-R05" in result.out
    assert "excluded       V1-R09" in result.out
    replayed = run("replay", "preempted-before-it-was-computed", "--rule", "V1-R09", "--quiet")
    assert "V1-R09 is what" not in replayed.err
    contradicts = run("gate", "--rule", "V1-R05", "--exclude", "V1-R05")
    assert "--exclude: V1-R05 is also named by --rule" in contradicts.err


def test_a_target_that_means_nothing_is_said_with_the_file(run, tmp_path):
    for target in ("nope", "vllm==", "cmd:"):
        (tmp_path / "pyproject.toml").write_text(f'[tool.schedproof]\ntarget = "{target}"\n')
        result = run("gate")
        assert result.code == 2
        assert result.err.startswith("schedproof: pyproject.toml: tool.schedproof.target: ")
        assert result.err.count("\n") == 1


@pytest.mark.slow
def test_what_is_excluded_of_one_system_is_no_part_of_a_gate_of_another(run, said):
    said('exclude = ["V1-R09"]\n')
    result = run("gate", "model", "--system", "nano_vllm", "--rule", "NAN-R12")
    assert (result.code, result.err) == (0, ""), result


@pytest.mark.slow
def test_deviations_of_one_system_are_no_part_of_a_gate_of_another(run, said):
    said('deviations = "known.toml"\n')
    Path("known.toml").write_text('[[by_design]]\nrule = "V1-R09"\nreason = "a deadline"\n')
    result = run("gate", "model", "--system", "nano_vllm", "--rule", "NAN-R12")
    assert (result.code, result.err) == (0, ""), result


OTHER = '[tool.schedproof]\ntarget = "my_pkg.sched:make"\n'
SHORT = ("--scope", "slots", "--requests", "1", "--limits", "3")


def test_explore_and_search_say_that_they_do_not_judge_the_projects_target(run, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(OTHER + 'system = "vllm"\n', encoding="utf-8")
    note = (
        "explores schedproof's own model of vllm, not the target my_pkg.sched:make of "
        "pyproject.toml, which `schedproof gate` judges"
    )
    explored = run("explore", *SHORT)
    assert note in " ".join(explored.out.split()), explored
    searched = run("search", "SPY-R07", "--param", "requests=2")
    assert note.replace("explores", "searches").replace("vllm", "spyre") in " ".join(
        searched.out.split()
    ), searched
    file.write_text('[tool.schedproof]\ntarget = "model"\nsystem = "vllm"\n', encoding="utf-8")
    assert "not the target" not in run("explore", *SHORT).out


def test_a_target_that_the_search_replays_on_is_not_called_left_out(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(OTHER, encoding="utf-8")
    searched = run("search", "SPY-R07", "--param", "requests=2", "--target", "model")
    assert "not the target" not in searched.out, searched


def test_explore_takes_the_system_of_the_projects_target(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.schedproof]\ntarget = "vllm==0.33.0"\n', encoding="utf-8"
    )
    assert "explore vllm documented" in run("explore", *SHORT).out


def test_the_projects_revision_is_not_another_systems(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.schedproof]\nsystem = "vllm"\nrevision = "0.33"\n', encoding="utf-8"
    )
    assert "explore vllm 0.33" in run("explore", *SHORT).out
    explored = run("explore", "--system", "nano_vllm", *SHORT)
    assert "explore nano_vllm documented" in explored.out, explored


def test_a_project_of_a_system_without_scopes_is_told_how_to_explore_another(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(OTHER + 'system = "generic"\n', encoding="utf-8")
    explored = run("explore")
    assert explored.code == 2
    assert "pyproject.toml: tool.schedproof.system: generic has no scopes" in explored.err
    assert "--system names another: spyre, vllm" in explored.err
