"""`schedproof search`: what the solver finds or proves, in words and exit codes."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from schedproof.gate import cli
from schedproof.gate.scenario_file import read_scenario

SMALLEST = [
    *("--set", "block_size=2", "--set", "chunk_size=2"),
    *("--set", "max_model_len=8", "--set", "max_batch_tkv=8"),
]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def main(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["schedproof", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        read = capfd.readouterr()
        return Result(int(ended.value.code or 0), read.out, read.err)

    return main


def test_a_counterexample_is_replayed_explained_and_written(run: Run) -> None:
    result = run("search", "SPY-R07", "--set", "formula=2.1.0", *SMALLEST)
    assert result.code == 1, result
    lines = result.out.splitlines()
    assert lines[0] == (
        "search SPY-R07, formula 2.1.0: "
        "block_size 2, chunk_size 2, max_batch_tkv 8, max_model_len 8"
    )
    assert lines[1] == "up to 1 requests: 1 x 8 <= 8, whoever is admitted"
    assert lines[2].startswith("2 requests (short prompts first): sat after ")
    assert "BROKEN SPY-R07 batch × tkv within the limit" in lines[3]
    assert "  why:" in lines
    [file] = Path("schedproof-out").iterdir()
    assert read_scenario(file).origin == {"engine": "z3", "note": "formula 2.1.0", "seed": None}
    command = f"schedproof replay {file} --target model:2.1.0 --rule SPY-R07"
    assert lines[-1].strip() == f"replay:   {command}"
    again = run(*command.split()[1:])
    assert again.code == 1
    assert "2 requests x tkv" in again.out


def test_the_documented_revision_is_broken_and_replays_on_itself(run: Run) -> None:
    result = run("search", "SPY-R07", "--revision", "documented", *SMALLEST)
    assert result.code == 1
    [file] = Path("schedproof-out").iterdir()
    assert run("replay", str(file)).code == 1


def test_where_the_limit_cannot_be_reached_nothing_is_asked_and_exit_is_0(run: Run) -> None:
    result = run("search", "SPY-R07", "--set", "max_model_len=4096", "--set", "formula=2.1.0")
    assert result.code == 0, result
    assert "up to 32 requests: 32 x 4096 <= 131072, whoever is admitted\n" in result.out
    assert result.out.endswith("proven: no counterexample with up to 32 requests\n")


def test_the_worst_volume_is_bisected_replayed_and_told(run: Run) -> None:
    words = ["--maximize", "--set", "formula=2.1.0", "--set", "requests=2", *SMALLEST]
    result = run("search", "SPY-R07", *words)
    assert result.code == 1, result
    lines = result.out.splitlines()
    assert lines[0].startswith("worst volume of 2 requests, formula 2.1.0: block_size 2")
    assert "12 is reached, 12 never exceeded, after " in result.out
    assert lines[-1] == "worst of 2 requests: 4 tokens too many"


def test_the_worst_of_a_sound_formula_is_the_limit(run: Run) -> None:
    result = run("search", "SPY-R07", "--maximize", "--set", "requests=2", *SMALLEST)
    assert result.code == 0, result
    assert result.out.endswith("proven: the limit is never exceeded\n")


def test_the_worst_of_requests_that_always_fit_needs_no_question(run: Run) -> None:
    result = run("search", "SPY-R07", "--maximize", "--set", "requests=4")
    assert result.code == 0, result
    assert result.out.endswith("proven: they fit whoever is admitted\n")


@pytest.mark.parametrize("revision", ["sound", "2.1.2"])
def test_a_sound_formula_is_proven_for_every_number_of_requests(run: Run, revision: str) -> None:
    result = run("search", "SPY-R07", "--prove", "--revision", revision)
    assert result.code == 0, result
    lines = result.out.splitlines()
    assert lines[0].startswith("prove SPY-R07 for every number of requests and steps, formula ")
    assert all(line.startswith("proven ") for line in lines[1:-1])
    assert len(lines) > 8
    assert lines[-1] == "proven, each lemma with a weaker one beside it that is refuted"


def test_a_proof_that_fails_is_inconclusive_and_names_the_lemma(run: Run) -> None:
    result = run("search", "SPY-R07", "--prove", "--set", "formula=2.1.0")
    assert result.code == 3
    assert "\nrefuted    covers_newcomer " in result.out
    assert "inconclusive: 1 of the lemmas fail" in result.out


def test_a_time_limit_that_is_reached_is_inconclusive(run: Run) -> None:
    result = run("search", "SPY-R07", "--revision", "2.1.2", "--time-limit", "1")
    assert result.code == 3
    assert result.out.splitlines()[-1] == (
        "inconclusive: no counterexample with up to 4 requests; then the time limit of 1 s was "
        "reached"
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [("solving.run_search", ["search", "SPY-R07"]), ("run_gate", ["gate", "--profile", "quick"])],
)
def test_ctrl_c_before_there_is_an_answer_is_one_line_and_exit_3(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"schedproof.gate.cli.{command}", interrupted)
    assert run(*words) == (3, "", "schedproof: interrupted\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SPY-R99"], "no rule 'SPY-R99'"),
        (["SPY-R09"], "RULE: SPY-R09 has no encoding; valid: SPY-R07"),
        (
            ["SPY-R07", "--revision", "2.5.2"],
            "--revision: '2.5.2' has no encoding of SPY-R07; valid: sound, documented, 2.1.2",
        ),
        (["SPY-R07", "--set", "formula=9"], "--set: formula '9' is unknown; valid: document_own"),
        (["SPY-R07", "--set", "blocks=9"], "--set: 'blocks=9'; valid: KEY=VALUE with KEY one of"),
        (["SPY-R07", "--set", "block_size"], "--set: 'block_size'; valid: a number of tokens"),
        (["SPY-R07", "--set", "block_size=0"], "--set: 'block_size=0'; valid: a number of tokens"),
        (["SPY-R07", "--set", "early_eos=1"], "--set: 'early_eos=1'; valid: early_eos=true"),
        (["SPY-R07", "--set", "chunk_size=100"], "--set: chunk_size 100 is not a multiple of"),
        (["SPY-R07", "--set", "max_model_len=64"], "--set: max_model_len 64; valid: more than"),
        (["SPY-R07", "--set", "max_batch_tkv=9"], "--set: max_batch_tkv 9; valid: at least"),
        (["SPY-R07", "--set", "requests=1"], "--set: 'requests=1'; valid: 2 to 32 requests"),
        (["SPY-R07", "--prove", "--maximize"], "--maximize: a proof has no worst case"),
        (["SPY-R07", "--time-limit", "0"], "--time-limit: 0.0"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run: Run, words: list[str], message: str) -> None:
    result = run("search", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: {message}")
    assert result.err.count("\n") == 1
