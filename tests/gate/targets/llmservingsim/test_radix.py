"""LLMServingSim's releases before the block pool, 1.0.0 and 1.1.0, as targets.

They run on checkouts that the tests write themselves; `test_releases` gates the real ones.
"""

from dataclasses import replace
from typing import Any

import pytest

from schedproof.gate.targets import checkouts
from schedproof.gate.targets.llmservingsim.releases import CHECKOUT
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load

from .stand_in import write_1_0_0, write_1_1_0

SYSTEM = "llmservingsim"
WRITE = {"1.1.0": write_1_1_0, "1.0.0": write_1_0_0}
CONFIG = {
    **{"block_size": 4, "num_blocks": None, "max_num_seqs": 3, "max_num_batched_tokens": 8},
    **{"long_prefill_token_threshold": 0, "enable_chunked_prefill": False},
    **{"enable_prefix_caching": True, "prioritize_prefill": False, "pp_size": 1},
    "instances": 0,
}
CHUNKED = {**CONFIG, "enable_chunked_prefill": True}


def opened(folder):
    command, env = checkouts.command_of(CHECKOUT, str(folder))
    return PipeTarget(command, env=env)


@pytest.fixture(scope="module", params=sorted(WRITE))
def pipe(request, tmp_path_factory):
    folder = WRITE[request.param](tmp_path_factory.mktemp("stand-in"))
    with opened(folder) as target:
        yield target


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    with opened(write_1_1_0(tmp_path_factory.mktemp("stand-in"))) as target:
        yield target


def begin(pipe, config=CONFIG, **changes):
    reply = pipe.start(SYSTEM, "documented", {**config, **changes})
    assert reply["ok"], reply
    return reply


def ask(pipe, name, prompt, max_tokens, says=None, **more):
    request = {"id": name, "prompt": [[says or name, prompt]], "max_tokens": max_tokens, **more}
    assert pipe.add(request) == {"ok": True}


def step(pipe):
    reply = pipe.step()
    assert reply["ok"], reply
    seen: dict[str, Any] = reply["step"]
    return seen


def counted(reply, **computed):
    """The count of computed tokens, which 1.0.0 does not have."""
    return {"computed": computed} if "computed" in reply["observes"] else {}


@pytest.mark.parametrize("write", WRITE.values())
def test_a_release_before_the_block_pool_is_held_to_the_page(tmp_path, write):
    assert checkouts.revision_of(CHECKOUT, str(write(tmp_path))) == "documented"


def test_a_folder_with_neither_layout_is_refused_with_both_names(tmp_path):
    with pytest.raises(Exception, match=r"no serving/core/scheduler\.py and no inference_serving/"):
        checkouts.folder_of(CHECKOUT, str(tmp_path))


def test_a_step_shows_what_the_scheduler_keeps_of_its_requests(pipe):
    reply = begin(pipe)
    assert ("computed" in reply["observes"]) == (reply["version"] == "1.1.0")
    assert (reply["name"], reply["version"] in WRITE) == (SYSTEM, True)
    ask(pipe, "a", 5, 3, output_len=2)
    ask(pipe, "b", 5, 1)
    assert step(pipe) == {
        **{"kind": "prefill", "scheduled": {"a": 5}, "emitted": {"a": 1}, "waiting": ["b"]},
        **{"running": ["a"], "prefilling": [], "preempted": [], "finished": {}},
        **counted(reply, a=5),
        "prefix_hit": {"a": 0},
        **{"prompt_throughput": 5, "decode_throughput": 1},
    }
    second = step(pipe)
    assert (second["kind"], second["scheduled"]) == ("mixed", {"a": 1, "b": 5})
    assert second["finished"] == {"a": "eos", "b": "length"}
    assert step(pipe)["kind"] == "idle"


def test_a_hit_is_what_the_scheduler_found(pipe):
    reply = begin(pipe, max_num_seqs=1)
    ask(pipe, "a", 6, 1, says="s")
    ask(pipe, "b", 6, 2, says="s")
    step(pipe)
    seen = step(pipe)
    assert (seen["scheduled"], seen["prefix_hit"]) == ({"b": 2}, {"b": 4})
    assert seen["prompt_throughput"] == 6
    assert counted(reply, b=6).items() <= seen.items()


def test_a_chunk_emits_nothing_and_its_request_is_still_in_its_prompt(newer):
    begin(newer, CHUNKED, long_prefill_token_threshold=3)
    ask(newer, "a", 5, 2)
    seen = step(newer)
    assert (seen["scheduled"], seen["emitted"]) == ({"a": 3}, {})
    assert (seen["prefilling"], seen["computed"]) == (["a"], {"a": 3})


def test_the_pool_is_the_memory_beside_the_weight(pipe):
    begin(pipe, num_blocks=7)
    assert step(pipe)["free_blocks"] == 7


def test_the_release_without_chunks_refuses_them_with_their_key(tmp_path):
    with opened(write_1_0_0(tmp_path)) as pipe:
        reply = pipe.start(SYSTEM, "documented", CHUNKED)
        assert reply["message"].startswith("$.config.enable_chunked_prefill is true; valid: false")
        reply = pipe.start(SYSTEM, "documented", {**CONFIG, "long_prefill_token_threshold": 4})
        assert reply["message"].startswith("$.config.long_prefill_token_threshold is 4; valid: 0")


def test_an_abort_is_unsupported_and_an_id_is_used_once(pipe):
    begin(pipe)
    ask(pipe, "a", 4, 2)
    assert pipe.abort("a")["error"] == "unsupported"
    assert pipe.add({"id": "a", "prompt": [["a", 4]], "max_tokens": 2})["error"] == "rejected"


def test_a_scheduler_that_does_as_the_page_says_breaks_no_rule(newer):
    rules = [rule for rule in load(SYSTEM, "documented") if rule.checked]
    options = SearchOptions(newer, SYSTEM, "documented", rules, "small")
    search = Search(replace(options, fixed={"num_blocks": None}))
    assert not run_search(search, 30, 0, 0), search.failure
    assert search.exercised["LSS-R08"] > 5


@pytest.mark.parametrize(("instances", "rules"), [(1, ("LSS-R20", "LSS-R21")), (2, ("LSS-R26",))])
def test_its_main_loop_keeps_the_rules_of_the_page(newer, instances, rules):
    every = [rule for rule in load(SYSTEM, "documented") if rule.checked]
    options = SearchOptions(newer, SYSTEM, "documented", every, "small")
    search = Search(replace(options, fixed={"num_blocks": None, "instances": instances}))
    assert not run_search(search, 30, 0, 0), search.failure
    assert all(search.exercised[rule] > 5 for rule in rules)


def test_the_main_loop_of_the_checkout_decides_when_the_simulation_ends(newer):
    begin(newer, instances=1)
    ask(newer, "a", 5, 1)
    ask(newer, "b", 5, 1, tool_steps=20)
    shown = [
        (taken["scheduled"], taken["deferred"], taken["over"])
        for taken in [step(newer) for _ in range(4)]
    ]
    assert shown == [
        ({"a": 5}, ["b"], False),
        ({}, [], False),
        ({"b": 5}, [], False),
        ({}, [], True),
    ]
    ask(newer, "c", 5, 1)
    assert step(newer)["scheduled"] == {"c": 5}


def test_the_decoding_instance_of_the_checkout_gets_who_is_prefilled(newer):
    begin(newer, instances=2)
    ask(newer, "a", 5, 1)
    taken = step(newer)
    assert (taken["finished"], taken["handed_over"]) == ({"a": "length"}, ["a"])
    assert (taken["emitted"], taken["decode_throughput"]) == ({"a": 1}, 0)
    assert (step(newer)["over"], step(newer)["handed_over"]) == (True, [])


def test_an_exception_in_the_main_loop_is_a_crash_and_the_next_run_begins_anew(tmp_path):
    folder = write_1_1_0(tmp_path)
    file = folder / "serving/core/router.py"
    file.write_text(file.read_text().replace("self.open.discard", "self.nothing.discard"))
    with opened(folder) as pipe:
        begin(pipe, instances=1)
        ask(pipe, "a", 5, 1)
        assert "has no attribute 'nothing'" in pipe.step()["message"]
        begin(pipe)
        ask(pipe, "a", 5, 1)
        assert step(pipe)["finished"] == {"a": "length"}


def test_the_release_without_a_router_refuses_a_main_loop(tmp_path):
    with opened(write_1_0_0(tmp_path)) as pipe:
        reply = pipe.start(SYSTEM, "documented", {**CONFIG, "instances": 1})
        assert reply["message"].startswith("$.config.instances is 1; valid: 0")


@pytest.mark.parametrize("release", ["1.0.0", "1.1.0", "after 1.1.0"])
def test_what_a_release_does_beside_the_page_is_known_of_it(release):
    known = {rule.id for rule in load(SYSTEM, "documented") if rule.divergences_of(release)}
    assert {"LSS-R09", "LSS-P01", "LSS-R20"} <= known
    assert ("LSS-R36" in known) == (release == "1.0.0")
