"""`schedproof search`: what the solver finds or proves, in words and exit codes."""

import re
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import z3

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.processes.work_process import TimeLimit, Unanswered
from schedproof.solver.smt import obligation
from schedproof.solver.spyre.length_lemmas import Scale, idle_step, needless_wait
from schedproof.solver.spyre.proofs_by_rule import PROOFS, limit_lemmas
from schedproof.solver.vllm.proofs_by_rule import PROOFS as VLLM

SIZES = "(arithmetic for blocks of any size, code for blocks of one size)"
ANSWER = "answer, in the cases that the lemmas run:"
SMALLEST = [
    *("--param", "block_size=2", "--param", "chunk_size=2"),
    *("--param", "max_model_len=8", "--param", "max_batch_tkv=8"),
]


def without_statements(out):
    """Return the printed lines without the statements of the lemmas."""
    return [line for line in out.splitlines() if not line.startswith(11 * " ")]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))


ANSWERS: dict[str, object] = {}
decided = obligation._decided


def decided_once(facts):
    """The answer to a question that several proofs ask."""
    question = z3.Solver()
    question.add(facts)
    text = question.sexpr()
    if text not in ANSWERS:
        ANSWERS[text] = decided(facts)
    return ANSWERS[text]


@pytest.fixture
def in_this_process(monkeypatch):
    """A question starts no process, which takes a second, and is decided once."""
    monkeypatch.setattr(obligation, "_decided", decided_once)
    for module in ("proofs", "spyre.volumetric"):
        monkeypatch.setattr(
            f"schedproof.gate.search.{module}.run_in_process",
            lambda seconds, work, *args: work(*args),
        )


@pytest.fixture
def few_lemmas(in_this_process, monkeypatch):
    """Only what the code does, and the arithmetic, are proven, which takes no second.
    test_certificate proves the step."""

    def few(*args):
        groups = limit_lemmas(*args)
        return groups[:2]

    monkeypatch.setattr("schedproof.gate.search.spyre.volumetric.limit_lemmas", few)


@pytest.fixture
def without_proof(in_this_process, monkeypatch):
    """The search for a counterexample begins at once."""
    monkeypatch.setattr("schedproof.gate.search.spyre.volumetric._proven_first", lambda _: False)


@pytest.mark.slow
def test_a_counterexample_is_replayed_explained_and_written(run):
    result = run("search", "SPY-R07", "--param", "formula=2.1.0", *SMALLEST)
    assert result.code == 1, result
    lines = result.out.splitlines()
    assert lines[0] == (
        "search SPY-R07, formula 2.1.0, interleaving: "
        "block_size 2, chunk_size 2, max_batch_tkv 8, max_model_len 8"
    )
    assert lines[1].startswith("no proof: covers_newcomer refuted: The term of the newcomer ")
    assert lines[2] == "up to 1 requests: 1 x 8 <= 8, whichever requests are admitted"
    assert lines[3].startswith("2 requests (short prompts first): found after ")
    assert "BROKEN SPY-R07 batch × tkv within the limit" in lines[4]
    assert "  why:" in lines
    [file] = Path("schedproof-out").iterdir()
    origin = {"engine": "z3", "note": "formula 2.1.0", "seed": None, "rule": "SPY-R07"}
    assert read_scenario(file).origin == origin
    command = f"schedproof replay {file} --target model:2.1.0 --rule SPY-R07"
    assert lines[-2].strip() == f"replay:   {command}"
    again = run(*command.split()[1:])
    assert again.code == 1
    assert "2 requests x tkv" in again.out


@pytest.mark.slow
@pytest.mark.usefixtures("without_proof")
def test_the_documented_revision_is_broken_and_replays_on_itself(run):
    result = run("search", "SPY-R07", "--revision", "documented", *SMALLEST)
    assert result.code == 1
    [file] = Path("schedproof-out").iterdir()
    assert run("replay", str(file)).code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_proof")
def test_where_the_limit_cannot_be_reached_nothing_is_asked_and_exit_is_0(run):
    result = run("search", "SPY-R07", "--param", "max_model_len=4096", "--param", "formula=2.1.0")
    assert result.code == 0, result
    assert "up to 32 requests: 32 x 4096 <= 131072, whichever requests are admitted\n" in result.out
    assert result.out.endswith(
        "proven: no counterexample with up to 32 requests in Z3's encoding\n"
    )


def test_the_worst_volume_is_bisected_replayed_and_told(run):
    words = ["--maximize", "overshoot", "--param", "formula=2.1.0", "--param", "requests=2"]
    result = run("search", "SPY-R07", *words, *SMALLEST)
    assert result.code == 1, result
    lines = result.out.splitlines()
    assert lines[0].startswith(
        "worst overshoot of 2 requests, formula 2.1.0, interleaving: block_size 2"
    )
    assert "12 is reached, 12 is never exceeded, after " in result.out
    assert lines[-1] == "worst of 2 requests: 4 tokens over the limit"


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_sound_formula_is_never_beyond_the_limit(run):
    words = ["--maximize", "overshoot", "--param", "requests=2", *SMALLEST]
    result = run("search", "SPY-R07", *words)
    assert result.code == 0, result
    assert result.out.endswith("proven for 2 requests in Z3's encoding: 8 is never exceeded\n")


def test_requests_that_always_fit_are_never_beyond_the_limit(run):
    result = run("search", "SPY-R07", "--maximize", "overshoot", "--param", "requests=4")
    assert result.code == 0, result
    assert result.out.endswith(
        "\nproven: 4 requests are always within the limit, whichever are admitted\n"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_the_largest_volume_of_a_sound_formula_is_shown_with_its_run(run):
    words = ["--maximize", "volume", "--param", "requests=2", *SMALLEST]
    result = run("search", "SPY-R07", *words)
    assert result.code == 0, result
    assert "\n8 at most, within the limit of 8\n" in result.out
    [file] = Path("schedproof-out").iterdir()
    assert file.name.startswith("volume-")
    assert "2 requests" not in run("replay", str(file), "--rule", "SPY-R07").err


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_the_safest_refusal_waits_longer_than_by_the_exact_check(run):
    larger = ["block_size=2", "chunk_size=2", "max_model_len=12", "max_batch_tkv=24"]
    words = [word for value in ["requests=3", *larger] for word in ("--param", value)]
    result = run("search", "SPY-R07", "--maximize", "waste", *words)
    assert result.code == 0, result
    reported = next(line for line in result.out.splitlines() if line.startswith("r2 could join"))
    assert " of 24 tokens unused; with formula common_base, it joins in step" in reported
    commands = [line for line in result.out.splitlines() if line.startswith("  replay:")]
    assert len(commands) == 2
    for line in commands:
        assert run(*line.split()[2:], "--quiet").code == 0


@pytest.mark.nightly
@pytest.mark.usefixtures("in_this_process")
def test_a_release_refuses_by_a_request_that_has_left_all_but_twenty_tokens(run):
    words = ["--maximize", "waste", "--revision", "2.1.2", "--param", "requests=5"]
    result = run("search", "SPY-R07", *words)
    assert result.code == 0, result
    assert "131052 is reached, 131052 is never exceeded, after " in result.out
    [joins, waits] = re.findall(r"join in step (\d+), .* it joins in step (\d+)\n", result.out)[0]
    assert int(waits) == int(joins) + 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_the_exact_check_refuses_nobody_in_vain(run):
    words = ["--param", "formula=exact", "--param", "requests=2", *SMALLEST]
    result = run("search", "SPY-R07", "--maximize", "waste", *words)
    assert result.code == 0, result
    end = "proven for 2 requests in Z3's encoding: no safe request is refused\n"
    assert result.out.endswith(end)


OF_A_FEW = (
    "every number of steps, with 0 to 5 or 32 requests that decode, and 2 that wait (no lemma "
    "proves that these stand for any number of requests; it is argued from the code's loops)"
)


@pytest.mark.usefixtures("few_lemmas")
def test_a_sound_formula_is_proven_for_every_number_of_steps(run):
    result = run("search", "SPY-R07", "--prove")
    assert result.code == 0, result
    lines = result.out.splitlines()
    assert lines[0].startswith(
        f"prove SPY-R07 for {OF_A_FEW}, the code in blocks of 64, chunks of 512, formula "
    )
    terms = [line for line in lines if line.startswith("  ")]
    assert [line.split(":")[0].strip() for line in terms[:4]] == ["tkv", "base", "term", "walk"]
    lemmas = [line for line in lines[1:-1] if not line.endswith(":") and line not in terms]
    assert all(line.startswith("proven ") for line in lemmas)
    assert len(lines) > 8
    assert lines[-1].startswith("proven in ")
    assert "the code in blocks of 64, chunks of 512; " in lines[-1]
    assert lines[-1].endswith("; solver/spyre/argument.md says what is assumed")


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("rule", "words", "assumed"),
    [
        pytest.param(
            "SPY-R07",
            ["--revision", "2.1.2", "--param", "interleave=false"],
            ", if the pool has room for every prompt",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "SPY-R47",
            ["--revision", "2.5.2", "--param", "pausing=false"],
            "",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_release_is_proven_in_its_configurations(run, rule, words, assumed):
    result = run("search", rule, *words)
    assert result.code == 0, result
    sizes = ", the code in blocks of 64, chunks of 512"
    assert f"\nproven for {OF_A_FEW}{assumed}{sizes}: " in result.out


@pytest.mark.nightly
@pytest.mark.usefixtures("in_this_process")
def test_a_release_that_pauses_keeps_the_limit_whatever_joins(run):
    result = run("search", "SPY-R07", "--revision", "2.5.2", "--param", "interleave=false")
    assert result.code == 0, result
    assert "\nproven     decoding_requests_were_kept_2_1 " in result.out


@pytest.mark.nightly
@pytest.mark.usefixtures("in_this_process")
def test_the_join_by_the_tkv_of_the_last_prompt_is_found_at_production_scale(run):
    words = ["--param", "pausing=false", "--param", "interleave=false"]
    result = run("search", "SPY-R47", "--revision", "2.5.2", *words)
    assert result.code == 1, result
    assert "\nno proof: remembered_tkv_covers_every_member_1 refuted: " in result.out
    assert "\n5 requests (short prompts first): found after " in result.out
    [file] = Path("schedproof-out").iterdir()
    assert run("replay", str(file), "--rule", "SPY-R47").code == 1


@pytest.mark.nightly
@pytest.mark.usefixtures("in_this_process")
def test_a_proof_can_be_for_blocks_of_any_size(run):
    any_block = ["--param", "block_size=any", "--param", "formula=rounded"]
    result = run("search", "SPY-R07", "--prove", *any_block)
    assert result.code == 0, result
    assert result.out.splitlines()[0].endswith("arithmetic for blocks of any size")


OWN = """
def last_token(request, tkv, prompt):
    return max(tkv, prompt) + request.remaining


def whole_blocks(request, tkv, prompt, block_size):
    return -(-last_token(request, tkv, prompt) // block_size) * block_size
"""


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_formula_of_ones_own_is_refuted_by_a_small_run_and_told_its_slack(run, tmp_path):
    (tmp_path / "my.py").write_text(OWN)
    # All five fit at this limit: the production scale is on the page that shows this command.
    result = run("search", "SPY-R07", "--param", "formula=my.py:last_token", "--param", SCALE)
    assert result.code == 1, result
    lines = result.out.splitlines()
    refuted = [line.split(":")[1].strip() for line in lines if line.startswith("no proof: ")]
    assert refuted == ["covers_decoding refuted", "covers_newcomer refuted"]
    assert "  step 3:  2 requests x tkv 4 = 8 > 6 (by 2)" in result.out
    slack = "slack: with 63 more tokens for every request, the lemmas about the formula hold: "
    assert any(line.startswith(slack) for line in lines)
    assert any(
        "about the formula hold: --param formula=my.py:last_token+63" in line for line in lines
    )
    assert "--target model:my.py:last_token --rule SPY-R07" in result.out


SCALE = "max_batch_tkv=2000000"


@pytest.mark.usefixtures("few_lemmas")
def test_a_formula_of_ones_own_that_is_sound_is_proven(run, tmp_path):
    (tmp_path / "my.py").write_text(OWN)
    result = run("search", "SPY-R07", "--param", "formula=my.py:whole_blocks")
    assert result.code == 0, result
    lines = result.out.splitlines()
    assert lines[1].startswith(f"proven for {OF_A_FEW}, the code in ")
    assert lines[2:4] == [
        "  for blocks of 64, any max_model_len and any max_batch_tkv",
        "slack: none is needed; every lemma about the formula holds",
    ]


def test_a_formula_of_ones_own_that_cannot_be_read_is_one_line(run, tmp_path):
    (tmp_path / "my.py").write_text("def f(batch):\n    return 1\n")
    for words in (["search", "SPY-R07", "--param"], ["gate", "model", "--config"]):
        for name, message in (("no.py", "no such file; valid: FILE"), ("my.py", "f takes 'batch'")):
            result = run(*words, f"formula={name}:f")
            result.refused(f"formula: {name}: {message}")
    (tmp_path / "my.py").write_text("def f(tkv):\n    return 0 if type(tkv) is int else tkv\n")
    result = run("search", "SPY-R07", "--param", "formula=my.py:f")
    result.refused("formula: my.py:f: returns something else on symbols than on numbers, such as ")
    run("gate", "model", "--config", "formula=what").refused(
        "--config: formula 'what' is unknown; valid: document_own"
    )
    run("gate", "model:2.1.0", "--config", "formula=2.1.2").refused(
        "--config: formula=2.1.2 does not apply to model:2.1.0; valid only with the target model"
    )


@pytest.mark.usefixtures("without_proof")
def test_a_release_with_a_formula_of_its_own_is_searched_by_its_name(run):
    result = run("search", "SPY-R07", "--revision", "2.1.0", *SMALLEST)
    assert result.code == 1, result
    assert result.out.startswith("search SPY-R07, formula 2.1.0, revision 2.1.2, interleaving: ")
    assert "\n  config:   spyre 2.1.2, " in result.out
    assert "--target model:2.1.0 --rule SPY-R07\n" in result.out


@pytest.mark.usefixtures("in_this_process")
def test_what_the_model_lets_in_is_searched_and_what_a_release_does_where_it_is_the_target(run):
    sizes = ("block_size=4", "chunk_size=8", "max_model_len=6", "max_batch_tkv=6", "requests=2")
    words = ["search", "SPY-R07", "--revision", "documented"]
    words += [word for size in sizes for word in ("--param", size)]
    result = run(*words)
    assert result.code == 1, result
    assert "2 requests x tkv 4 = 8 > 6" in result.out
    result = run(*words, "--target", "model:2.1.2")
    assert result.code == 0, result
    assert ", of requests that a release accepts (SPY-R62)\n" in result.out
    assert (
        result.out.splitlines()[-1]
        == "proven: no counterexample with up to 2 requests in Z3's encoding"
    )


@pytest.mark.usefixtures("in_this_process")
def test_a_proof_of_pausing_is_for_one_block_whatever_is_set(run, monkeypatch):
    monkeypatch.setattr("schedproof.gate.search.spyre.volumetric.limit_lemmas", lambda *_: [])
    words = ["--prove", "--revision", "2.5.2", "--param", "block_size=any"]
    result = run("search", "SPY-R07", *words)
    assert result.out.splitlines()[0].endswith("blocks of 64")


@pytest.mark.usefixtures("few_lemmas")
def test_a_proof_that_fails_is_inconclusive_and_names_the_lemma(run):
    result = run("search", "SPY-R07", "--prove", "--param", "formula=2.1.0")
    assert result.code == 3
    assert "\nrefuted    covers_newcomer " in result.out
    assert "inconclusive: 1 of 13 lemmas not proven, so the argument" in result.out


@pytest.mark.slow
def test_a_time_limit_that_is_reached_is_inconclusive(run):
    result = run("search", "SPY-R07", "--revision", "2.1.2", "--time-limit", "1")
    assert result.code == 3
    assert re.fullmatch(  # how many, is a matter of the machine
        r"inconclusive: no counterexample with up to \d+ requests; "
        "then the time limit of 1 s was reached.*; --time-limit allows more",
        result.out.splitlines()[-1],
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("search.spyre.volumetric.run_search", ["search", "SPY-R07"]),
        ("cli.gate.run_gate", ["gate", "model", "--profile", "quick"]),
    ],
)
def test_ctrl_c_before_there_is_an_answer_is_one_line_and_exit_3(run, monkeypatch, command, words):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"schedproof.gate.{command}", interrupted)
    assert run(*words) == (3, "", "schedproof: interrupted\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SPY-R99"], "no rule 'SPY-R99'"),
        (["SPY-R09"], "RULE: SPY-R09 has no encoding for Z3; valid: SPY-R07, SPY-R47, SPY-R41"),
        (["SPY-R21", "--engine", "hypothesis"], "RULE: SPY-R21 has no predicate: "),
        (["SPY-R07", "--engine", "hypothesis", "--jobs", "0"], "--jobs: 0; valid: at least 1"),
        (
            ["SPY-R07", "--engine", "spin"],
            "--engine: 'spin'; valid: z3, hypothesis, explore, vectorized, all",
        ),
        (
            ["SPY-R07", "--engine", "all", "--prove"],
            "--engine: all cannot prove anything; valid with --prove",
        ),
        (["SPY-R07", "--maximize", "cost"], "--maximize: 'cost'; valid: volume, overshoot, waste"),
        (
            ["SPY-R07", "--prove", "--target", "model"],
            "--target: only counterexamples found by Z3 are replayed",
        ),
        (
            ["SPY-R07", "--engine", "hypothesis", "--param", "block_size=2"],
            "--param: 'block_size=2': this engine does not take this parameter; valid: "
            "formula=NAME",
        ),
        (
            ["SPY-R41", "--revision", "2.1.2"],
            "--revision: '2.1.2'; does not apply to SPY-R41; omit this option",
        ),
        (
            [
                "SPY-R07",
                "--maximize",
                "waste",
                "--revision",
                "2.1.2",
                "--param",
                "interleave=false",
            ],
            "--param: interleave=false with --maximize waste; valid: interleave=true, or a rev",
        ),
        (
            ["SPY-R50", "--maximize", "waste"],
            "--maximize: 'waste'; does not apply to SPY-R50; omit",
        ),
        (["SPY-R50", "--target", "model"], "--target: 'model'; does not apply to SPY-R50; omit"),
        (
            ["SPY-R50", "--param", "formula=2.1.2"],
            "--param: 'formula=2.1.2'; valid with SPY-R50: blo",
        ),
        (
            ["SPY-R50", "--param", "block_size=0"],
            "--param: 'block_size=0'; valid: a number of tokens",
        ),
        (["SPY-R07", "--param", "block_size=any"], "--param: 'block_size=any'; valid: a number of"),
        (["SPY-R07", "--time-limit", "inf"], "--time-limit: inf; valid: at least 1"),
        (
            ["SPY-R07", "--revision", "2.6.3"],
            "--revision: '2.6.3' is not a revision on which Z3 can decide SPY-R07; valid: sound, ",
        ),
        (
            ["SPY-R07", "--param", "pausing=true"],
            "--param: 'pausing=true'; valid only together with --revi",
        ),
        (
            ["SPY-R07", "--param", "interleave=0"],
            "--param: 'interleave=0'; valid: interleave=true,",
        ),
        (
            ["SPY-R47", "--revision", "2.5.2"],
            "--param: pausing=true with SPY-R47; valid: pausing=false, which uses the formula",
        ),
        (
            ["SPY-R07", "--revision", "2.5.2", "--maximize", "volume"],
            "--maximize: 'volume' of SPY-R07; valid: SPY-R07, and a revision that does not pause",
        ),
        (["SPY-R07", "--target", "nowhere:make"], "TARGET 'nowhere:make': cannot import 'nowhere'"),
        (["SPY-R07", "--target", "nothing"], "TARGET 'nothing' is not understood; valid: model"),
        (
            ["SPY-R07", "--param", "formula=9"],
            "--param: formula '9' is unknown; valid: document_own",
        ),
        (
            ["SPY-R07", "--param", "blocks=9"],
            "--param: 'blocks=9'; valid: KEY=VALUE with KEY one of",
        ),
        (["SPY-R07", "--param", "block_size"], "--param: 'block_size'; valid: a number of tokens"),
        (
            ["SPY-R07", "--param", "block_size=0"],
            "--param: 'block_size=0'; valid: a number of tokens",
        ),
        (["SPY-R07", "--param", "early_eos=1"], "--param: 'early_eos=1'; valid: early_eos=true"),
        (["SPY-R07", "--param", "chunk_size=100"], "--param: chunk_size 100 is not a multiple of"),
        (["SPY-R07", "--param", "max_model_len=1"], "--param: max_model_len 1; valid: at least 2"),
        (
            ["SPY-R07", "--param", "max_model_len=64", "--target", "model"],
            "--param: max_model_len 64; valid with --target: more than block_size; otherwise ",
        ),
        (["SPY-R07", "--param", "max_batch_tkv=9"], "--param: max_batch_tkv 9; valid: at least"),
        (["SPY-R07", "--param", "requests=1"], "--param: 'requests=1'; valid: 2 to 32 requests"),
        (["SPY-R07", "--prove", "--maximize", "volume"], "--maximize: a proof finds no worst case"),
        (["SPY-R07", "--time-limit", "0"], "--time-limit: 0"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, words, message):
    run("search", *words).refused(message)


@pytest.mark.slow
@pytest.mark.usefixtures("without_proof")
def test_a_counterexample_is_replayed_on_another_target_too(run):
    words = ["--param", "formula=2.1.0", "--target", "model:2.0.1", *SMALLEST]
    result = run("search", "SPY-R07", *words)
    assert result.code == 1, result
    assert "\nmodel:2.0.1 also breaks it, in step " in result.out
    command = result.out.splitlines()[-1].split()
    assert command[:3] == ["replay:", "schedproof", "replay"]
    assert run(*command[2:]).code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_proof")
def test_a_target_that_keeps_the_limit_in_that_run_is_no_finding(run):
    words = ["--param", "formula=2.1.0", "--target", "model:common_base", *SMALLEST]
    result = run("search", "SPY-R07", *words)
    assert result.code == 3, result
    assert result.out.endswith(
        "stays within the limit in this run, because it uses another formula to admit requests\n"
    )


@pytest.mark.slow
def test_hypothesis_finds_what_a_formula_breaks_and_proves_nothing(run):
    words = ["search", "SPY-R07", "--engine", "hypothesis"]
    found, alone = (run(*words, "--param", "formula=1.10.0", "--jobs", jobs) for jobs in "21")
    assert found.code == 1, found
    assert found.out.split("found after")[0] == alone.out.split("found after")[0]
    assert "--target model:1.10.0 --rule SPY-R07" in found.out
    sampled = run(*words, "--time-limit", "2")
    assert sampled.code == 3, sampled
    assert sampled.out.splitlines()[-1].startswith("inconclusive: none of the ")


@pytest.mark.slow
def test_hypothesis_samples_rules_that_have_no_encoding(run):
    words = ["search", "SPY-R30", "--engine", "hypothesis", "--time-limit", "2"]
    result = run(*words, "--revision", "2.1.2")
    assert result.code == 3, result
    assert "breaks SPY-R30, which was exercised in " in result.out


@pytest.mark.nightly
@pytest.mark.usefixtures("without_proof")
def test_all_engines_are_asked_and_one_counterexample_is_enough(run, monkeypatch):
    monkeypatch.setattr("schedproof.gate.search.counterexample.SHRINK_SECONDS", 0.1)
    monkeypatch.setattr("schedproof.gate.search.question._explored", lambda *_: 3)
    result = run("search", "SPY-R07", "--engine", "all", "--param", "formula=1.10.0")
    assert result.code == 1, result
    assert ": found after " in result.out
    assert "corpus, production scale: found after " in result.out


def test_engines_that_disagree_are_told_and_exit_1(run, monkeypatch):
    monkeypatch.setattr("schedproof.gate.search.spyre.volumetric.run_search", lambda *_: 0)
    monkeypatch.setattr("schedproof.gate.search.question.run_samples", lambda *_: 1)
    monkeypatch.setattr("schedproof.gate.search.question._explored", lambda *_: 3)
    result = run("search", "SPY-R07", "--engine", "all")
    assert result.code == 1
    assert result.out.startswith("the engines disagree: one has a proof, another a counterexample")


@pytest.fixture
def some_lemmas(monkeypatch):
    """Of each rule the first four lemmas, and one about code: tests/solver has all."""

    def few(all_lemmas, block):
        found = all_lemmas(block)
        return [*found[:4], next(lemma for lemma in found[4:] if lemma.code)]

    for proofs in (PROOFS, VLLM):
        for rule, proof in proofs.items():
            some = partial(few, proof.obligations)
            monkeypatch.setitem(proofs, rule, proof._replace(obligations=some))


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_a_rule_beside_the_volumetric_one_is_decided_by_lemmas_and_counterexamples(run):
    result = run("search", "SPY-R50")
    assert result.code == 0, result  # what is shown breaks another rule
    lines = without_statements(result.out)
    assert lines[0] == "SPY-R50: Are more blocks ever promised than are free?"
    assert all(line.startswith("proven ") for line in lines[1:6])
    assert lines[6:8] == [
        f"5 lemmas proven {SIZES}, 0 not",
        f"{ANSWER} No, on the model `sound` and on that of 2.5.2.",
    ]
    assert lines[8].startswith("  proven for the model's code: spyre.")
    [shown] = [n for n, line in enumerate(lines) if line.startswith("counterexample: ")]
    start = "  replayed on the model of 2.5.2: breaks SPY-R38 in step 0: r0 "
    assert lines[shown + 1].startswith(start)
    assert run(*lines[shown + 2].split()[2:], "--rule", "SPY-R38").code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_a_rule_that_a_counterexample_breaks_exits_1(run):
    result = run("search", "SPY-P01")
    assert result.code == 1, result
    assert "breaks SPY-P01 in step 491: r0 has been paused for 33 steps" in result.out


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_the_lemmas_of_a_rule_can_be_proven_alone_and_for_one_size_of_blocks(run):
    result = run("search", "SPY-R19", "--prove", "--param", "block_size=64")
    assert result.code == 0, result
    assert f"\n5 lemmas proven for blocks of 64, 0 not\n{ANSWER} Yes.\n" in result.out


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_lemmas_that_fail_or_run_out_of_time_are_inconclusive(run, monkeypatch):
    too_small = run("search", "SPY-R41", "--prove", "--param", "block_size=2")
    assert too_small.code == 3, too_small
    assert "\nunguarded  " in too_small.out
    assert too_small.out.endswith("no answer, because an answer needs a proof of every lemma\n")
    monkeypatch.setattr("schedproof.gate.search.proofs.run_in_process", _out_of_time)
    late = run("search", "SPY-R50")
    assert late.code == 3
    assert late.out.endswith("inconclusive: the time limit of 300 s was reached\n")


def _out_of_time(limit, *_):
    raise Unanswered(f"the time limit of {limit.seconds:g} s was reached")
    yield


def test_the_time_limit_is_one_for_all_parts_of_a_search(run, monkeypatch, tmp_path):
    """The function on symbols, the proof, the smallest run, the real sizes and the slack."""
    (tmp_path / "f.py").write_text("def f(tkv): return tkv")
    limits = []

    def out_of_time(limit, *_):
        limits.append(limit)
        yield from _out_of_time(limit)

    monkeypatch.setattr("schedproof.gate.search.spyre.volumetric.run_in_process", out_of_time)
    formula = f"formula={tmp_path}/f.py:f"
    assert run("search", "SPY-R07", "--param", formula, "--time-limit", "60").code == 3
    assert len(limits) == 5
    assert len({limit.ends for limit in limits}) == 1


def test_several_engines_share_a_time_limit():
    whole = TimeLimit.begin(60)
    assert whole.share(3).ends < whole.share(2).ends < whole.share(1).ends <= whole.ends + 0.1
    assert TimeLimit(60, whole.ends - 120).left == 0


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_a_rule_of_another_system_is_decided_by_the_lemmas_of_that_system(run):
    result = run("search", "V1-I2", "--prove")
    assert result.code == 0, result
    lines = without_statements(result.out)
    assert lines[0].startswith("V1-I2: Can a step compute more tokens than its budget, ")
    end = lines.index(f"{ANSWER} No.")
    assert all(line.startswith("proven ") for line in lines[1 : end - 1])
    assert lines[end - 1] == f"{end - 2} lemmas proven {SIZES}, 0 not"


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "some_lemmas")
def test_two_runs_that_refute_a_claim_together_are_both_counted_and_written(run):
    result = run("search", "V1CP-R32", "--param", "block_size=16")
    assert result.code == 1, result
    lines = result.out.splitlines()
    shown = lines.index("two runs: max_num_seqs lowered by one: more preemptions")
    assert lines[shown + 1] == "  max_num_seqs 3: 0 preemptions on the model of documented"
    assert lines[shown + 3] == "  max_num_seqs 2: 1 preemption on the model of documented"
    assert "  watermark 0.375: 1 preemption on the model of documented" in lines
    assert len([*Path("schedproof-out").iterdir()]) == 6
    replayed = run(*lines[shown + 4].split()[2:])
    assert replayed.code == 0, replayed


def test_a_rule_of_another_system_can_be_sampled_and_explored(run, monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(
        "schedproof.gate.search.question.run_samples", lambda *words: asked.append(words[1]) or 3
    )
    monkeypatch.setattr(
        "schedproof.gate.search.question.run_exploration",
        lambda console, parts, *_: asked.append({part.scope.system for part in parts}) or 3,
    )
    for engine in ("hypothesis", "explore"):
        assert run("search", "V1-R09", "--engine", engine).code == 3
    assert asked == ["vllm", {"vllm"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["V1-R85"], "no rule 'V1-R85'; did you mean V1-R98 or V1-R95 or V1-R88"),
        (["V1-R09"], "RULE: V1-R09 has no encoding for Z3; valid: V1-I2, "),
        (
            ["V1-I2", "--revision", "documented"],
            "--revision: 'documented'; does not apply to V1-I2; ",
        ),
        (
            ["V1-I2", "--param", "policy=fcfs"],
            "--param: 'policy=fcfs'; valid with V1-I2: block_size",
        ),
        (
            ["V1-I2", "--engine", "hypothesis", "--param", "formula=2.1.0"],
            "--param: 'formula=2.1.0': this engine takes no parameters",
        ),
    ],
)
def test_what_another_system_cannot_be_asked_is_one_line_and_exit_2(run, words, message):
    result = run("search", *words)
    assert (result.code, result.out) == (2, ""), result
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_run_that_breaks_nothing_is_not_called_a_counterexample(run, monkeypatch):
    # At published sizes these runs have 30,000 steps; tests/solver proves the lemmas.
    small = Scale(64, 64, 192)
    runs = {"a wait": lambda: needless_wait(small), "an idle step": lambda: idle_step(small)}
    proof = PROOFS["SPY-R41"]._replace(obligations=lambda block: [], counterexamples=runs)
    monkeypatch.setitem(PROOFS, "SPY-R41", proof)
    result = run("search", "SPY-R41")
    assert result.code == 0, result
    parts = result.out.split("\n")
    named = {
        line.partition(":")[0]: after
        for line, after in pairwise(parts)
        if line.startswith(("counterexample:", "a run that breaks no rule:"))
    }
    assert ": breaks SPY-R35 " in named["counterexample"]
    assert "breaks no rule" in named["a run that breaks no rule"]


def test_a_parameter_that_is_given_twice_is_refused(run):
    words = ("--param", "requests=2", "--param", "requests=3")
    result = run("search", "SPY-R07", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err == "schedproof: --param: 'requests=3': requests is given twice\n"
