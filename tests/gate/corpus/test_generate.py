"""Scenarios that exist before the first bug: what they are, and that they hold."""

from pathlib import Path

import pytest

from schedproof.gate.corpus import generate as corpus_generate
from schedproof.gate.corpus.folder import Entry, entries
from schedproof.gate.corpus.generate import Generating, generate, rules_to_generate
from schedproof.model.observation import Step
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.boundary_cases import used
from schedproof.solver.systems import space_of
from schedproof.spec.catalogue import load

from ...command_line import Run


def generated(
    folder: Path, ids: str, *, system: str = "spyre", revision: str = "sound", per_rule: int = 2
) -> tuple[list[Entry], list[str], list[str]]:
    """What is in the corpus then, what was said, and the rules without a scenario."""
    said: list[str] = []
    rules = rules_to_generate(system, revision, ids.split(","))
    catalogue = rules_to_generate(system, revision, [])
    asked = Generating(
        *(system, revision, folder, per_rule, 0, "2026-01-31", said.append, catalogue)
    )
    without = generate(asked, rules)
    return (entries(folder) if folder.exists() else []), said, without


def steps_of(entry: Entry) -> list[Step]:
    """The steps on the model, where every rule holds and the entry's was exercised."""
    steps: list[Step] = []
    rules = load(entry.scenario.system)
    outcome = replay(ModelTarget(), entry.scenario, rules, lambda _, step: steps.append(step))
    assert outcome.broken == []
    assert outcome.finished
    assert outcome.exercised[entry.rule] > 0
    return steps


def test_the_volume_is_exactly_at_the_limit_and_one_below_it(tmp_path: Path) -> None:
    there, said, without = generated(tmp_path, "SPY-R07")
    left = {
        one.scenario.config["max_batch_tkv"]
        - (used(one.scenario, "max_batch_tkv", steps_of(one)) or 0)
        for one in there
    }
    assert left == {0, 1}
    assert without == []
    assert said == [
        "SPY-R07: 2: z3, exactly at the limit: max_batch_tkv 96; "
        "z3, one below the limit: max_batch_tkv 97"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "key", "system", "revision"),
    [
        ("V1-I2", "max_num_batched_tokens", "vllm", "documented"),
        ("NAN-R40", "max_num_seqs", "nano_vllm", "documented"),
    ],
)
def test_a_rule_with_a_limit_has_a_run_that_uses_all_of_it(
    tmp_path: Path, rule: str, key: str, system: str, revision: str
) -> None:
    there, _, _ = generated(tmp_path, rule, system=system, revision=revision, per_rule=1)
    [entry] = there
    assert used(entry.scenario, key, steps_of(entry)) == entry.scenario.config[key]
    assert entry.scenario.origin is not None
    assert "exactly at the limit" in entry.scenario.origin["note"]


def test_other_rules_have_the_smallest_witness_and_a_sample(tmp_path: Path) -> None:
    there, said, _ = generated(tmp_path, "SPY-R38")
    assert len(there) == 2
    assert "smallest witness" in said[0]
    for entry in there:
        steps_of(entry)
        assert entry.shape == ""
        assert entry.found_on == "schedproof model of spyre sound"


@pytest.mark.slow
def test_what_the_explorer_does_not_ask_is_sampled(tmp_path: Path) -> None:
    there, said, _ = generated(tmp_path, "ALL-R05", per_rule=1)
    assert said == ["ALL-R05: 1: hypothesis, sample (seed 0)"]
    steps_of(there[0])


def test_every_run_can_crash_or_hang(tmp_path: Path) -> None:
    there, _, without = generated(tmp_path, "ALL-R02", per_rule=1)
    assert len(there) == 1
    assert without == []
    steps_of(there[0])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    first, _, _ = generated(tmp_path / "a", "SPY-R38,ALL-R10")
    again, _, _ = generated(tmp_path / "b", "SPY-R38,ALL-R10")
    assert len(first) == 4
    assert [one.path.name for one in first] == [one.path.name for one in again]
    assert [one.path.read_text() for one in first] == [one.path.read_text() for one in again]


def test_what_was_not_found_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = space_of("spyre")._replace(checkup=())
    monkeypatch.setattr(corpus_generate, "space_of", lambda _: nothing)
    monkeypatch.setattr(corpus_generate, "EXAMPLES", 1)
    reported = run("corpus", "generate", "--rules", "SPY-R60", "--corpus", str(tmp_path / "corpus"))
    assert reported.code == 3
    assert reported.out.splitlines()[0].startswith("SPY-R60: none found")
    assert "0 of 1 rules have scenarios" in reported.out
    assert not (tmp_path / "corpus").exists()


def test_lockstep_is_about_a_target_beside_the_model(tmp_path: Path) -> None:
    there, said, without = generated(tmp_path, "ALL-R07", revision="2.1.2")
    assert (there, without) == ([], [])
    assert "compares a target with the model" in said[0]


def test_a_line_a_rule_and_a_corpus_that_verifies(run: Run, tmp_path: Path) -> None:
    corpus = ("--corpus", str(tmp_path / "corpus"))
    reported = run("corpus", "generate", "--rules", "SPY-R38, ALL-R03", "--per-rule", "1", *corpus)
    assert reported.code == 0
    assert len(reported.out.splitlines()) == 3
    assert "2 of 2 rules have scenarios" in reported.out
    assert run("corpus", "verify", *corpus).code == 0
    assert run("corpus", "run", *corpus).code == 0
