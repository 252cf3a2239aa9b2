"""`schedproof check contracts`: proven for the model, refuted for planted faults, never guessed."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schedproof.gate.search import contracts
from schedproof.gate.search.contracts import Answer, Claim, called_with, confirm_claim
from schedproof.model import pool
from schedproof.model.spyre import documented, peak, release_2_1_2, volumetric
from schedproof.solver.spyre.contracts import CONTRACTS

ABOUT = (pool, documented, peak, release_2_1_2, volumetric)
MODULES = {subject.__name__.rpartition(".")[2]: subject for subject in ABOUT}
PATIENCE = 120.0  # seconds; what takes a moment, however busy the machine
# The functions before anything is planted.
chunk, tkvs, volume = documented.next_chunk, documented.request_tkvs, peak.peak_volume
left_padding = documented.left_padding_blocks


def unaligned_chunk(prompt, computed, size, block):
    start = computed // size * size
    return start, min(start + size, prompt)


def short_chunk(*arguments):
    start, end = chunk(*arguments)
    return start, end - (end < arguments[0])


# By contract: what its function does wrong.
FAULTS: dict[str, Callable[..., Any]] = {
    "fewest_blocks": lambda tokens, block: tokens // block + 1,
    "fewest_chunks": lambda prompt, size: prompt // size + 1,
    "left_padding": lambda *prompt: left_padding(*prompt) + 1,
    "chunk_in_turn": lambda *prompt: (chunk(*prompt)[0], chunk(*prompt)[1] + 1),
    "chunk_borders": unaligned_chunk,
    "chunk_after_chunk": short_chunk,
    "last_chunk": lambda prompt, computed, size: prompt - computed < size,
    "usable_hit": lambda pads, hit, chunks, size: max((pads + hit) // size * size - pads, 0),
    "chunk_after_hit": lambda pads, hit, chunks, size: hit,
    "rectangle": lambda lengths, block: [max(lengths) // block - n // block for n in lengths],
    "request_tkv": lambda lengths, block: list(lengths),
    "largest_tkv": lambda lengths, block: max(lengths),
    "filled_block": lambda widest, filled, block: widest // block * block + filled,
    "leaving": lambda lengths, block: min(tkvs(lengths, block), default=0),
    "realigned_place": lambda tokens, width, block: width * block + (tokens - 1) % block + 1,
    "realigned_tkv": lambda tokens, width, block: max(tokens, width * block),
    "tkv_after_prompt": lambda prompt, tkv, block: max(prompt, tkv),
    "rounded_up": lambda tokens, block: tokens // block * block + block,
    "peak_alone": lambda *batch: volume(*batch) + 1,
}


@pytest.fixture
def plant(monkeypatch):
    """Puts a fault into the function that a contract is about."""

    def put(name, fault=None):
        module, _, function = CONTRACTS[name].about.partition(".")
        wrong = fault or FAULTS[name.partition("/")[0]]
        monkeypatch.setattr(MODULES[module], function, wrong)

    return put


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def in_this_process(monkeypatch):
    """Where a planted fault is seen: a process that is spawned has none."""
    monkeypatch.setattr(contracts, "run_in_process", lambda seconds, work, *args: work(*args))


def crosshair_on(name):
    [claim] = contracts.by_crosshair(name, PATIENCE)
    return confirm_claim(CONTRACTS[name], claim)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_is_proven_of_the_model(name):
    assert crosshair_on(name) == Answer("holds", "")


# One size of each contract: the fault is the same at the other one.
ONE_SIZE = {name.partition("/")[0]: name for name in reversed(CONTRACTS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_SIZE.values())
def test_a_planted_fault_is_refuted_by_its_contract(name, plant):
    plant(name)
    answer = crosshair_on(name)
    assert answer.status == "refuted", answer
    assert answer.why.startswith(f"{CONTRACTS[name].about}, ")


def test_every_contract_has_a_fault():
    assert set(FAULTS) == {name.partition("/")[0] for name in CONTRACTS}


def test_a_function_that_raises_is_refuted_with_its_error(plant):
    plant("rounded_up/any", lambda tokens, block: -(-tokens // block) * block + 0 // (tokens - 777))
    answer = crosshair_on("rounded_up/any")
    assert answer.status == "refuted"
    assert answer.why.startswith("volumetric.round_up, tokens 777, block ")
    assert "ZeroDivisionError" in answer.why


def test_time_that_is_over_is_no_proof():
    [claim] = contracts.by_crosshair("fewest_blocks/any", 0.0)
    assert not claim.holds
    assert confirm_claim(CONTRACTS["fewest_blocks/any"], claim).status == "inconclusive"


def test_a_contract_that_never_applies_is_not_proven(monkeypatch):
    name = "fewest_blocks/any"
    vacuous = replace(CONTRACTS[name], given=lambda tokens, **_: tokens < tokens)
    monkeypatch.setitem(CONTRACTS, name, vacuous)
    answer = crosshair_on(name)
    assert answer.status == "inconclusive"
    assert "precondition" in answer.why


RECTANGLE = CONTRACTS["rectangle/production"]


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("false when calling rectangle([1, 65], 64) (which returns False)", ([1, 65], 64)),
        ("false when calling rectangle([1], block = 64) (which returns False)", ([1], 64)),
        ("ValueError: (which) when calling rectangle([2], 64)", ([2], 64)),
        ("false when calling rectangle([1])", None),
        ("false when calling rectangle(v1:=[1], 64)", None),
        ("false when calling other([1], 64)", None),
        ("Not confirmed.", None),
    ],
)
def test_the_arguments_of_a_counterexample_are_read_or_it_has_none(message, arguments):
    expected = arguments and dict(zip(("lengths", "block"), arguments, strict=True))
    assert called_with(RECTANGLE, message) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        {"lengths": [1, 65], "block": 64},
        {"lengths": [0], "block": 64},
        {"lengths": [True, 65], "block": 64},
    ],
    ids=["none", "holds there", "not allowed", "no plain number"],
)
def test_a_counterexample_that_does_not_fail_on_replay_is_inconclusive(arguments):
    answer = confirm_claim(RECTANGLE, Claim(False, "CrossHair: so it says", arguments))
    assert answer.status == "inconclusive"
    assert answer.why.endswith("CrossHair: so it says")


@pytest.mark.slow
def test_the_backend_of_the_nightly_profile_finds_a_planted_fault(plant, tmp_path, monkeypatch):
    name = "last_chunk/production"
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path))
    monkeypatch.setitem(contracts.PROFILES, "nightly", 10)
    [claim] = contracts.by_hypothesis(name, PATIENCE)
    assert claim.holds
    plant(name)
    [claim] = contracts.by_hypothesis(name, PATIENCE)
    assert confirm_claim(CONTRACTS[name], claim).status == "refuted"


@pytest.mark.slow
def test_a_planted_fault_is_found_by_a_python_without_assertions(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path))
    planted = """
from schedproof.gate.search import contracts
from schedproof.model.spyre import documented
contracts.PROFILES["nightly"] = 10
documented.is_last_chunk = lambda prompt, computed, size: prompt - computed < size
[claim] = contracts.by_hypothesis("last_chunk/production", 60)
print(claim.holds)
"""
    command = [sys.executable, "-O", "-c", planted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_an_error_of_the_backend_itself_is_inconclusive(tmp_path, monkeypatch):
    name = "last_chunk/production"
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path))

    def fails(request):
        return {"prompt": contracts.st.integers().map(lambda n: n // 0)}

    monkeypatch.setattr(contracts, "_strategies", fails)
    [claim] = contracts.by_hypothesis(name, PATIENCE)
    answer = confirm_claim(CONTRACTS[name], claim)
    assert answer.status == "inconclusive"
    assert "ZeroDivisionError" in answer.why


@pytest.mark.slow
def test_contracts_that_are_confirmed_are_exit_0(run):
    words = ("--only", "fewest_blocks", "--only", "last_chunk/production", "--time-limit", "60")
    result = run("check", "contracts", *words)
    assert (result.code, result.err) == (0, "")
    first, blocks, last, end = result.out.splitlines()
    assert first == "2 contracts, by CrossHair, 60 s each"
    assert blocks.startswith("confirmed    fewest_blocks/any ")
    assert blocks.endswith(" s  The blocks hold all tokens, and one block fewer would not.")
    assert last.startswith("confirmed    last_chunk/production ")
    assert end == "confirmed: 2 contracts"


def test_a_refuted_contract_is_exit_1_with_its_arguments_whatever_else_is_inconclusive(
    run, plant, in_this_process, monkeypatch
):
    plant("last_chunk/production")
    real = contracts.confirm_claim

    def doubts(request, claim):
        return Answer("inconclusive", "who knows") if claim.holds else real(request, claim)

    monkeypatch.setattr(contracts, "confirm_claim", doubts)
    words = ("--only", "last_chunk/production", "--only", "fewest_blocks", "--time-limit", "60")
    result = run("check", "contracts", *words)
    assert (result.code, result.err) == (1, "")
    lines = result.out.splitlines()
    assert lines[1].startswith("inconclusive fewest_blocks/any ")
    assert lines[2] == "    who knows"
    assert lines[3].startswith("refuted      last_chunk/production ")
    assert lines[4].startswith("    documented.is_last_chunk, prompt ")
    assert lines[5] == "refuted: 1 of 2 answers"


def test_a_process_that_does_not_answer_is_inconclusive_and_exit_3(run, monkeypatch):
    def silent(seconds, work, *args):
        raise contracts.Unanswered(f"the time limit of {seconds:g} s was reached")

    monkeypatch.setattr(contracts, "run_in_process", silent)
    result = run("check", "contracts", "--only", "fewest_blocks", "--time-limit", "5")
    assert (result.code, result.err) == (3, "")
    _, line, why, end = result.out.splitlines()
    assert line.startswith("inconclusive fewest_blocks/any ")
    assert why == "    the time limit of 30 s was reached"
    assert end == "inconclusive: 1 of 1 answers, none refuted; a longer --time-limit may decide"


def test_the_nightly_profile_asks_hypothesis_as_well(run, monkeypatch):
    asked: list[str] = []

    def claims(seconds, work, name, limit):
        asked.append(work.__name__)
        return iter([Claim(True)])

    monkeypatch.setattr(contracts, "run_in_process", claims)
    result = run("check", "contracts", "--only", "fewest_blocks", "--profile", "nightly")
    assert result.code == 0
    assert asked == ["by_crosshair", "by_hypothesis"]
    assert "held         fewest_blocks/any " in result.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing argument"),
        (["proofs"], "WHAT: 'proofs'; valid: contracts"),
        (["contracts", "--only", "no"], "--only: no contract 'no'; valid: fewest_blocks, "),
        (["contracts", "--profile", "quick"], "--profile: 'quick'; valid: ci, nightly"),
        (["contracts", "--time-limit", "0"], "--time-limit: 0; valid: at least 1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words, says, run):
    run("check", *words).refused(f"{says}")


@pytest.mark.parametrize(
    ("absent", "profile", "package"),
    [
        ("crosshair", "ci", "crosshair-tool hypothesis-crosshair"),
        ("hypothesis_crosshair_provider", "nightly", "crosshair-tool hypothesis-crosshair"),
    ],
)
def test_what_is_not_installed_is_one_line_and_exit_2(absent, profile, package, run, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    result = run("check", "contracts", "--profile", profile)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("schedproof: check contracts: ")
    assert result.err.endswith(f"pip install {package}\n")
    assert result.err.count("\n") == 1


@pytest.mark.slow
def test_other_commands_do_not_load_crosshair():
    commands = "gate, replay, check, explore"
    loaded = f"import sys; from schedproof.gate.cli import {commands}; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert not {"crosshair", "schedproof.gate.search.contracts"} & set(ended.stdout.split())
