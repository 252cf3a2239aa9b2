"""Tests for a target's own repository: they run there, without schedproof."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.builtin_scenarios import builtin_scenarios
from schedproof.gate.corpus.folder import entries
from schedproof.gate.corpus.replay import expecting
from schedproof.gate.corpus.upstream_export import as_test_file
from schedproof.gate.files.scenario_file import FileError
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config

from ..corpus_build import calm, crowd, kept
from .test_export import hostile

SPYRE = Scenario(
    system="spyre",
    revision="2.1.2",
    config={"max_num_seqs": 2, "max_model_len": 512, "chunk_size": 128, "block_size": 64},
    requests=(
        Request(id="a", arrival=0, prompt=(("a", 300),), max_tokens=80),
        Request(id="b", arrival=2, prompt=(("b", 9),), max_tokens=9, output_len=4, abort_at=9),
    ),
)


def exported(folder: Path, *scenarios: tuple[Scenario, str]) -> str:
    for scenario, rule in scenarios:
        kept(folder, scenario, rule=rule)
    text = as_test_file(entries(folder))
    ast.parse(text)
    return text


def test_a_rule_with_words_of_the_target_is_asserted_in_every_step(tmp_path: Path) -> None:
    text = exported(tmp_path, (crowd(), "NAN-R40"))
    assert "always=slots_within_limit" in text
    assert "checked_steps=[" not in text
    assert "dict(id='r0', add_step=0, prompt=[('r0', 5)], max_tokens=4)" in text
    code = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert not any("schedproof" in line for line in code)


def test_other_rules_have_the_steps_of_the_model(tmp_path: Path) -> None:
    text = exported(tmp_path, (SPYRE, "SPY-R04"))
    assert "# What the scheduler of revision 2.1.2 does." in text
    assert "ends_after=4, abort_step=9" in text
    rows = [line for line in text.splitlines() if line.strip().startswith("dict(step=")]
    assert rows[0].startswith("            dict(step=1, kind='prefill', scheduled={'a': ")
    assert rows[0].endswith("}, waiting=[], running=['a'], finished_requests=[]),")
    assert 3 < len(rows) < 20


def test_the_steps_are_those_of_a_model_that_keeps_the_rule(tmp_path: Path) -> None:
    folder = builtin_scenarios("nano_vllm")
    scenario = replace(folder["whole-prompt-is-cached.json"], expect=None)
    text = exported(tmp_path, (scenario, "NAN-R35"))
    assert "# What the scheduler of revision documented does." in text


def test_what_is_known_to_break_is_expected_to_fail(tmp_path: Path) -> None:
    text = exported(tmp_path, (expecting(crowd(), ["NAN-R40"]), "NAN-R40"))
    assert '@pytest.mark.xfail(strict=True, reason="known: NAN-R40")' in text


def test_names_stay_within_their_quotes(tmp_path: Path) -> None:
    text = exported(tmp_path, (replace(crowd(), requests=(hostile(),)), "NAN-R14"))
    assert repr(hostile().id) in text


@pytest.mark.parametrize("rule", ["ALL-R03", "V1-I2"])
def test_vllm_has_a_head_of_its_own(tmp_path: Path, rule: str) -> None:
    scenario = builtin_scenarios("vllm")["preempted-before-it-was-computed.json"]
    text = exported(tmp_path, (scenario, rule))
    assert "from vllm.v1.core.sched.scheduler import Scheduler" in text
    assert "policy='priority'" in text


LOADED = Scenario(
    system="vllm",
    revision="documented",
    config=full_config("vllm", "documented", {"kv_connector": True, "async_scheduling": True}),
    requests=(
        Request(
            id="a",
            arrival=0,
            prompt=(("a", 33),),
            max_tokens=2,
            external_tokens=32,
            load_steps=1,
            send_steps=3,
        ),
    ),
)


@pytest.mark.parametrize(
    ("rule", "checked"), [("ALL-R10", "always=gets_on"), ("V1-R20", "checked_steps=[")]
)
def test_decisions_in_flight_and_loads_are_part_of_the_file(
    tmp_path: Path, rule: str, checked: str
) -> None:
    text = exported(tmp_path, (LOADED, rule))
    assert checked in text
    assert "external_tokens=32, load_steps=1, send_steps=3" in text
    assert "async_scheduling=True, kv_connector=True" in text
    assert "schedproof" not in "".join(one for one in text.splitlines() if "import" in one)


def test_a_worker_that_is_fast_is_part_of_the_file(tmp_path: Path) -> None:
    fast = replace(LOADED, config={**LOADED.config, "early_completions": 2})
    text = exported(tmp_path, (fast, "V1-R20"))
    assert "async_scheduling=True, early_completions=2, kv_connector=True" in text
    assert "InFlight(depth, early_completions)" in text


def test_the_policy_for_loads_that_fail_is_part_of_the_file(tmp_path: Path) -> None:
    config = {**LOADED.config, "kv_load_failure_policy": "fail"}
    fails = replace(LOADED.requests[0], load_fails_at=16)
    text = exported(tmp_path, (replace(LOADED, config=config, requests=(fails,)), "V1-R28"))
    assert "kv_load_failure_policy='fail'" in text
    assert "load_fails_at=16" in text
    assert "kv_load_failure_policy=policy" in text


def test_what_cannot_be_said_honestly_is_refused(tmp_path: Path) -> None:
    kept(tmp_path / "two", crowd())
    kept(tmp_path / "two", SPYRE, rule="SPY-R04")
    with pytest.raises(FileError, match="entries of nano_vllm, spyre; valid: one system"):
        as_test_file(entries(tmp_path / "two"))
    other = Scenario(system="llmservingsim", requests=SPYRE.requests[:1])
    kept(tmp_path / "other", other, rule="LSS-R06")
    with pytest.raises(FileError, match="llmservingsim has no tests to write such ones for"):
        as_test_file(entries(tmp_path / "other"))
    aborted = replace(calm(), requests=(replace(calm().requests[0], abort_at=1),))
    kept(tmp_path / "aborted", aborted, rule="NAN-R14")
    with pytest.raises(FileError, match="nano-vLLM has no abort"):
        as_test_file(entries(tmp_path / "aborted"))
    drafts = {"num_speculative_tokens": 2}
    with_drafts = Scenario(
        system="vllm", revision="documented", config=drafts, requests=SPYRE.requests[:1]
    )
    kept(tmp_path / "drafts", with_drafts, rule="V1CP-R35")
    with pytest.raises(FileError, match=r"\$\.config\.num_speculative_tokens: 2: the loop of"):
        as_test_file(entries(tmp_path / "drafts"))


SCHEDULER = '''
class Scheduler:
    """As much of nano-vLLM's as a prompt of one step needs."""

    def __init__(self, config):
        self.max_num_seqs, self.slots = config.max_num_seqs, SLOTS or config.max_num_seqs
        self.block_manager, self.waiting, self.running = object(), [], []

    def add(self, one):
        self.waiting.append(one)

    def is_finished(self):
        return not self.waiting and not self.running

    def schedule(self):
        joining = self.waiting[: self.slots - len(self.running)]
        if joining:
            self.waiting = self.waiting[len(joining) :]
            self.running += joining
            return joining, True
        return list(self.running), False

    def postprocess(self, sequences, tokens):
        for one, token in zip(sequences, tokens):
            one.tokens.append(token)
        self.running = [one for one in self.running if not one.is_finished]
'''
SEQUENCE = """
class Sequence:
    block_table, num_cached_tokens = (), 0

    def __init__(self, prompt, params):
        self.seq_id, self.prompt, self.tokens = next(self.counter), prompt, []
        self.max_tokens = params.max_tokens

    def __len__(self):
        return len(self.prompt) + len(self.tokens)

    @property
    def num_completion_tokens(self):
        return len(self.tokens)

    @property
    def is_finished(self):
        return len(self.tokens) == self.max_tokens
"""
PARAMS = """
class SamplingParams:
    def __init__(self, max_tokens):
        self.max_tokens = max_tokens
"""


def checkout(folder: Path, slots: int) -> Path:
    """What looks like a checkout of nano-vLLM; `slots` 0: as many as it may have."""
    engine = folder / "nanovllm" / "engine"
    engine.mkdir(parents=True)
    (engine / "scheduler.py").write_text(f"SLOTS = {slots}\n{SCHEDULER}")
    (engine / "sequence.py").write_text(SEQUENCE)
    (engine.parent / "sampling_params.py").write_text(PARAMS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "ends"), [(3, "1 failed"), (0, "1 passed")])
def test_the_file_fails_where_the_rule_breaks_and_passes_where_it_holds(
    tmp_path: Path, slots: int, ends: str
) -> None:
    (tmp_path / "test_it.py").write_text(exported(tmp_path / "corpus", (crowd(), "NAN-R40")))
    nano = checkout(tmp_path / "nano", slots)
    reported = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"NANO_VLLM": str(nano)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ends in reported.stdout, reported.stdout + reported.stderr
