"""Exported files stand by themselves, whatever a scenario's names are."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.folder import entries
from schedproof.gate.corpus.replay import with_expectation
from schedproof.gate.files.scenario_file import scenario_of
from schedproof.model.scenario import Request

from ..corpus_build import calm, crowd, kept

HOSTILE = "'''\"\"\"\n{x}\\ \x1b]0;é"


def hostile():
    return Request(id=HOSTILE, arrival=0, prompt=((HOSTILE, 3),), max_tokens=2)


@pytest.fixture
def corpus(tmp_path):
    """A failure that is known, and a witness with names that mean harm."""
    folder = tmp_path / "corpus"
    kept(folder, with_expectation(crowd(), ["NAN-R40"]))
    kept(folder, replace(crowd(name=HOSTILE), requests=(hostile(),)), rule="NAN-R14")
    return folder


def exported(run, corpus, kind):
    out = corpus.parent / f"test_{kind}.py"
    reported = run("corpus", "export", "--as", kind, "--corpus", str(corpus), "-o", str(out))
    assert (reported.code, reported.err) == (0, "")
    return out.read_text()


def test_json_is_an_array_of_the_scenarios(run, corpus):
    read = [scenario_of(scenario, "here") for scenario in json.loads(exported(run, corpus, "json"))]
    assert read == [entry.scenario for entry in entries(corpus)]


def test_without_a_file_it_goes_to_stdout_and_nothing_else_does(run, corpus):
    reported = run("corpus", "export", "--as", "json", "--corpus", str(corpus), "--rule", "NAN-R40")
    assert len(json.loads(reported.out)) == 1


@pytest.mark.slow
def test_the_pytest_file_runs_and_says_why_it_fails(run, corpus):
    kept(corpus, crowd(prompt=2))
    exported(run, corpus, "pytest")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pytest.py"]
    reported = subprocess.run(words, cwd=corpus.parent, capture_output=True, text=True, check=False)
    assert reported.returncode == 1, reported.stdout + reported.stderr
    assert "1 failed, 2 passed" in reported.stdout
    assert (
        "the run breaks NAN-R40; expected that every rule holds (3 sequences run" in reported.stdout
    )
    assert "'requests':" not in reported.stdout  # the scenario is in the file, not in the report


def test_the_pytest_file_holds_the_scenarios_as_they_are(run, corpus):
    names: dict[str, object] = {}
    exec(compile(exported(run, corpus, "pytest"), "exported", "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert sorted(tests) == sorted(
        f"test_{entry.path.stem.lower().replace('-', '_')}" for entry in entries(corpus)
    )


@pytest.mark.slow
def test_the_pytest_file_passes_as_it_is_written(run, corpus):
    exported(run, corpus, "pytest")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pytest.py"]
    reported = subprocess.run(words, cwd=corpus.parent, capture_output=True, text=True, check=False)
    assert (reported.returncode, reported.stderr) == (0, ""), reported.stdout
    assert "2 passed" in reported.stdout


def test_the_pytest_file_tests_what_the_entries_were_found_on(run, tmp_path):
    def on(target):
        words = ("--as", "pytest", "--corpus", str(tmp_path / "corpus"), *target.split())
        reported = run("corpus", "export", *words)
        return reported.out or reported.err

    path = kept(tmp_path / "corpus", crowd())
    text = path.read_text()
    assert '"target": "model"' in text
    path.write_text(text.replace('"target": "model"', '"target": "mine:Target"'))
    assert 'get("SCHEDPROOF_TARGET", "mine:Target")' in on("")
    assert 'get("SCHEDPROOF_TARGET", "cmd:./a")' in on("--target cmd:./a")
    [line] = [line for line in on("--target cmd:é😀").splitlines() if line.startswith("TARGET")]
    assert eval(line.partition('"SCHEDPROOF_TARGET", ')[2].removesuffix(")")) == "cmd:é😀"
    assert (
        "TARGET 'a b' is not understood"
        in run(*("corpus", "export", "--as", "pytest", "--target", "a b")).err
    )
    kept(tmp_path / "corpus", crowd(prompt=2))
    assert "the entries were found on mine:Target, model; valid: name one with --target" in on("")


def test_an_unknown_rule_does_not_get_into_a_file(run, tmp_path):
    path = kept(tmp_path / "corpus", calm(), rule="NAN-R14")
    path.write_text(path.read_text().replace('"rule": "NAN-R14"', '"rule": "x\\"\\n"'))
    reported = run("corpus", "export", "--as", "upstream", "--corpus", str(tmp_path / "corpus"))
    assert (reported.code, reported.out, reported.err.count("\n")) == (2, "", 1)
    assert "$.origin.rule" in reported.err
