"""LLMServingSim's own scheduler as a target: what it decides is seen, and nothing else decides.

Its tests need a checkout: SCHEDPROOF_LLMSERVINGSIM is its folder, and this Python has numpy,
pyyaml and rich.
"""

import os
import sys
from typing import Any

import pytest

from schedproof.gate.targets.checkouts import ADAPTERS, revision_of
from schedproof.gate.targets.llmservingsim.checkout import Checkout, version_of
from schedproof.gate.targets.llmservingsim.releases import CHECKOUT
from schedproof.gate.targets.llmservingsim.target import (
    VARIABLE,
    LlmServingSimTarget,
    PoolEngine,
)
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.gate.targets.protocol_checks import RefusedError
from schedproof.model.observation import FIELDS
from schedproof.properties.rules.registry import LOCKSTEP
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load

Step = dict[str, Any]
SYSTEM = "llmservingsim"
CONFIG = {
    **{"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 8},
    **{"long_prefill_token_threshold": 0, "enable_chunked_prefill": True},
    **{"enable_prefix_caching": True, "prioritize_prefill": False, "pp_size": 1},
    "instances": 0,
}


@pytest.fixture(scope="module")
def pipe():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: no checkout of LLMServingSim to run")
    if revision_of(CHECKOUT, folder) != "head":
        pytest.skip("the checkout is of the generation before the block pool: see test_radix")
    with PipeTarget([sys.executable, str(ADAPTERS), SYSTEM], env=dict(os.environ)) as target:
        yield target


def begin(pipe, **changes):
    reply = pipe.start(SYSTEM, "head", CONFIG | changes)
    assert reply["ok"], reply
    return reply


def ask(pipe, name, prompt, max_tokens, **more):
    request = {"id": name, "prompt": [[name, prompt]], "max_tokens": max_tokens, **more}
    assert pipe.add(request) == {"ok": True}


def step(pipe):
    reply = pipe.step()
    assert reply["ok"], reply
    seen: Step = reply["step"]
    return seen


@pytest.mark.parametrize(("key", "value"), [("pp_size", 0), ("num_blocks", 0), ("instances", True)])
def test_what_the_scheduler_lacks_is_refused_with_its_place(key, value):
    target = LlmServingSimTarget()
    reply = target.start(SYSTEM, "head", CONFIG | {key: value})
    assert reply["error"] == "config"
    assert reply["message"].startswith(f"$.config.{key} is ")


def test_the_scheduler_over_a_block_pool_has_no_prefills_first():
    checkout = Checkout("after 1.1.0", None, token=0, has_pool=True)
    with pytest.raises(RefusedError, match="prioritize_prefill is true; valid: false"):
        PoolEngine(checkout, CONFIG | {"prioritize_prefill": True})


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, monkeypatch):
    reported = {
        str(tmp_path): f"{tmp_path} is not a checkout of LLMServingSim",
        "": f"{VARIABLE} is not set; valid: a checkout's folder",
    }
    for folder, message in reported.items():
        monkeypatch.setenv(VARIABLE, folder)
        reply = LlmServingSimTarget().start(SYSTEM, "head", CONFIG)
        assert reply == {"ok": False, "error": "config", "message": message}


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        (
            "# Changelog\n\n## [Unreleased]\n\n## [v1.1.0] - 2026-04-26\n## [v1.0.0]\n",
            "after 1.1.0",
        ),
        ("## [v1.1.0] - 2026-04-26\n", "1.1.0"),
        ("nothing\n", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_version_is_the_newest_release_that_the_checkout_names(tmp_path, changes, version):
    if changes is not None:
        (tmp_path / "CHANGELOG.md").write_text(changes)
    assert version_of(tmp_path) == version


def test_it_shows_what_it_promises(pipe):
    reply = begin(pipe)
    assert reply["name"] == SYSTEM
    unseen = {"tkv", "left_pad_blocks", "paused", "reserved_blocks", "slot_blocks", "parked"}
    unseen |= {
        "emitted_at",
        "completes",
        "encoder_inputs",
        "encoder_dropped",
        "group_blocks",
        "sent",
        *("deferred", "handed_over", "over"),  # of the main loop
        *("cache_events", "masks", "grammars"),
    }
    assert {*reply["observes"], "kind", "scheduled"} == FIELDS - unseen
    ask(pipe, "a", 10, 3, output_len=2)
    assert step(pipe) == {
        **{"kind": "prefill", "scheduled": {"a": 8}, "emitted": {}, "waiting": []},
        **{"running": ["a"], "prefilling": ["a"], "preempted": [], "finished": {}},
        **{"computed": {"a": 8}, "blocks": {"a": [1, 2]}, "prefix_hit": {"a": 0}},
        **{"free_blocks": 4, "prompt_throughput": 8, "decode_throughput": 0},
    }
    second = step(pipe)
    assert (second["emitted"], second["prompt_throughput"]) == ({"a": 1}, 2)
    assert second["decode_throughput"] == 1
    assert step(pipe)["finished"] == {"a": "eos"}
    assert step(pipe)["kind"] == "idle"


def test_preemptions_and_hits_are_seen(pipe):
    begin(pipe, num_blocks=5, max_num_batched_tokens=32)
    ask(pipe, "a", 7, 4)
    ask(pipe, "b", 7, 4)
    steps = [step(pipe) for _ in range(5)]
    assert [taken["preempted"] for taken in steps] == [[], [], ["b"], [], []]
    assert steps[2]["waiting"] == ["b"]
    assert steps[4]["prefix_hit"] == {"b": 8}
    assert steps[4]["kind"] == "decode"


def test_an_abort_is_unsupported_and_the_run_goes_on(pipe):
    begin(pipe)
    ask(pipe, "a", 4, 2)
    assert pipe.abort("a")["error"] == "unsupported"
    assert pipe.abort("a", inside=True)["error"] == "unsupported"
    assert step(pipe)["scheduled"] == {"a": 4}


def test_no_cap_is_refused_with_what_the_checkout_raises(pipe):
    reply = pipe.start(SYSTEM, "head", CONFIG | {"max_num_seqs": 0})
    assert (reply["ok"], reply["error"]) == (False, "config")
    assert "OverflowError" in reply["message"]


def test_a_budget_that_would_be_cut_silently_is_refused(pipe):
    reply = pipe.start(SYSTEM, "head", CONFIG | {"max_num_batched_tokens": 10**6})
    assert reply["message"].startswith("$.config.max_num_batched_tokens is 1000000; valid: at")


def test_an_unbounded_pool_does_not_come_round_to_what_it_has_cached(pipe):
    assert "free_blocks" not in begin(pipe, num_blocks=None)["observes"]
    ask(pipe, "a", 40_000, 1)
    request = {"id": "b", "prompt": [["b", 40_000]], "max_tokens": 1}
    assert pipe.add(request)["error"] == "rejected"


def test_what_the_pool_cannot_hold_is_let_in_and_blocks_all_others(pipe):
    begin(pipe)
    ask(pipe, "large", 40, 1)
    ask(pipe, "small", 4, 1)
    assert [step(pipe)["kind"] for _ in range(3)] == ["idle"] * 3


def test_with_chunking_off_who_was_preempted_past_the_budget_waits_for_ever(pipe):
    begin(
        pipe,
        **{"block_size": 2, "num_blocks": 4, "max_num_batched_tokens": 3},
        **{"enable_chunked_prefill": False, "enable_prefix_caching": False},
    )
    ask(pipe, "a", 1, 6)
    ask(pipe, "b", 1, 5)
    steps = [step(pipe) for _ in range(12)]
    assert steps[5]["finished"] == {"a": "length"}
    assert [taken["scheduled"] for taken in steps[6:]] == [{}] * 6
    assert steps[-1]["waiting"] == ["b"]


def test_it_keeps_every_other_rule_of_head_and_every_decision_of_its_model(pipe):
    """A request may block the queue for ever, and a token come early: findings 1 and 6 to 9."""
    found = {"ALL-R05", "ALL-R06", "ALL-R10", "LSS-P03", "LSS-R32"}
    rules = [rule for rule in load(SYSTEM, "head") if rule.checked and rule.id not in found]
    search = Search(SearchOptions(pipe, SYSTEM, "head", rules, "small"))
    assert not run_search(search, 40, 0, 0), search.failure
    assert search.exercised[LOCKSTEP] > 100
