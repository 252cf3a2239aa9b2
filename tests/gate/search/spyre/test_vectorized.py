"""`schedproof search --engine vectorized`: random loads, judged and replayed."""

from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.search.spyre import vectorized

pytest.importorskip("numpy", reason="NumPy is not installed: pip install numpy")


@pytest.fixture(autouse=True)
def _few_lanes(tmp_path, monkeypatch):
    """An empty working folder, and small nets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vectorized, "MAX_LANES", 256)
    monkeypatch.setattr("schedproof.gate.search.counterexample.SHRINK_SECONDS", 1.0)


TIGHT = [
    *("--param", "block_size=4", "--param", "chunk_size=4"),
    *("--param", "max_model_len=32", "--param", "max_batch_tkv=66"),
]


def test_a_hit_is_replayed_on_the_model_shrunk_written_and_explained(run):
    result = run("search", "SPY-R07", "--engine", "vectorized", "--param", "formula=1.10.0", *TIGHT)
    assert result.code == 1, result
    lines = result.out.splitlines()
    assert lines[0] == "search SPY-R07 by the vectorized model, formula 1.10.0"
    assert lines[1].startswith("found in ")
    assert lines[2] == "BROKEN SPY-R07 batch × tkv within the limit"
    assert "  why:" in lines
    [file] = Path("schedproof-out").iterdir()
    scenario = read_scenario(file)
    assert scenario.origin is not None
    assert (scenario.origin["engine"], scenario.origin["note"]) == ("vectorized", "formula 1.10.0")
    assert scenario.config["max_batch_tkv"] == 66
    command = f"schedproof replay {file} --target model:1.10.0 --rule SPY-R07"
    assert lines[-2].strip() == f"replay:   {command}"
    assert run(*command.split()[1:]).code == 1


@pytest.mark.slow
def test_a_hit_is_replayed_on_the_target_that_is_named(run):
    words = ("search", "SPY-R35", "--engine", "vectorized", "--revision", "2.1.2")
    result = run(*words, "--target", "model")
    assert result.code == 1, result
    assert "model also breaks it, in step " in result.out
    assert "BROKEN SPY-R35 no idle step" in result.out


def test_a_target_that_keeps_the_rule_is_said_to(run):
    words = ("search", "SPY-R07", "--engine", "vectorized", "--revision", "documented", *TIGHT)
    result = run(*words, "--target", "model:2.1.2")
    assert result.code == 3, result
    assert "BROKEN SPY-R07" in result.out
    assert "model:2.1.2 stays within the limit in this run" in result.out


@pytest.mark.slow
@pytest.mark.parametrize("rule", vectorized.JUDGED)
def test_what_keeps_its_promises_is_inconclusive_when_the_time_is_over(run, rule):
    result = run("search", rule, "--engine", "vectorized", *TIGHT, "--time-limit", "1")
    assert result.code == 3, result
    assert result.out.splitlines()[-1].startswith("inconclusive: none of ")
    assert result.out.endswith(f"breaks {rule}; the time limit was reached\n")
    assert not Path("schedproof-out").exists()


def test_the_same_net_catches_the_same():
    cast = vectorized.read_search("SPY-R07", "documented", TIGHT[1::2])
    first, again = (vectorized.run_net(cast, 0) for _ in range(2))
    assert first is not None
    assert first == again
    assert cast.runs == 512


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["SPY-R09"],
            "RULE: SPY-R09: the vectorized model cannot judge it; valid: SPY-R07, SPY-R35",
        ),
        (["V1-R09"], "RULE: V1-R09: the vectorized model cannot judge it; valid: SPY-R07, SPY-R35"),
        (
            ["SPY-R07", "--revision", "2.5.2"],
            "--revision: '2.5.2' has no vectorized model; valid: sound, ",
        ),
        (
            ["SPY-R07", "--param", "formula=exact"],
            "--param: 'exact' is no projection; valid: document",
        ),
        (
            ["SPY-R07", "--param", "early_eos=true"],
            "--param: early_eos: the vectorized model always ends some outputs early; omit",
        ),
        (["SPY-R07", "--param", "requests=1"], "--param: 'requests=1'; valid: 2 to 32 requests"),
        (
            ["SPY-R07", "--prove"],
            "--engine: vectorized cannot prove anything; valid with --prove: z3",
        ),
        (["SPY-R07", "--target", "nonsense"], "nonsense"),
    ],
)
def test_what_lanes_cannot_be_asked_is_one_line_and_exit_2(run, words, message):
    result = run("search", *words, "--engine", "vectorized")
    assert (result.code, result.out) == (2, ""), result
    assert message in result.err
    assert result.err.count("\n") == 1


def test_without_numpy_it_says_how_to_install_it(run, monkeypatch):
    monkeypatch.setattr(vectorized, "find_spec", lambda name: None)
    result = run("search", "SPY-R07", "--engine", "vectorized")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "schedproof: --engine: vectorized: NumPy is not installed; install it with: pip install "
        "numpy\n"
    )
