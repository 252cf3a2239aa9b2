"""Parked requests: when one is parked, holds blocks, lands, joins and leaves."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.pool import Pool, free_blocks
from schedproof.model.scenario import Request
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import connector, scheduler
from schedproof.model.vllm.config import read_config
from schedproof.model.vllm.model import unsupported
from schedproof.model.vllm.queue import Plan
from schedproof.model.vllm.state import Coming, Flight, State

from .build import config, decoding, pool, waiting

LOADS = {"kv_connector": True}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 8, "max_model_len": 32},
    **{"num_blocks": 8, "enable_prefix_caching": False},
}


def run(steps, *requests, **more):
    """The first steps of requests that arrive together."""
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS, **more})["ok"]
    for coming in requests:
        assert target.add(coming)["ok"]
    return [target.step()["step"] for _ in range(steps)]


def request(name, prompt, tokens=2, **more):
    return {"id": name, "prompt": [[name, prompt]], "max_tokens": tokens, **more}


def loaded(name, prompt, external, steps=0, **more):
    return request(name, prompt, external_tokens=external, load_steps=steps, **more)


def scheduled(steps):
    return [step["scheduled"] for step in steps]


def test_without_a_connector_the_key_is_absent_and_nothing_is_parked():
    assert read_config({"kv_connector": False}, "documented") == read_config({}, "documented")
    [first] = run(1, loaded("a", 8, 8), kv_connector=False)
    assert first["scheduled"] == {"a": 8}
    assert "parked" not in first


def test_drafts_are_computed_after_a_load():
    """With lookahead a parked request begins only where its first step has a block for it."""
    eagle = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2}
    load = loaded("a", 8, 8) | {"accepted": [1]}
    seen = run(3, load, **eagle)
    assert scheduled(seen) == [{}, {"a": 1}, {"a": 3}]
    assert [len(step["blocks"].get("a", ())) for step in seen[:2]] == [2, 3]
    assert seen[2]["emitted"] == {"a": 1}
    for free, fits in ((2, False), (3, True)):
        settings = config(**LOADS, **eagle, num_blocks=8, enable_prefix_caching=False)
        plan = Plan((), (), pool(8, 8 - free), 16, {})
        assert connector.has_room(settings, plan, waiting(8, external=8), (), 8) is fits


def test_a_prompt_of_one_token_that_is_loaded_keeps_its_block_while_it_waits():
    """Its only token is to be computed, and no other one needs to be."""
    requests = [request("b", 4, 20), loaded("a", 1, 1)]
    seen = run(3, *requests, max_num_seqs=1)
    assert [step["parked"] for step in seen] == [[], [], []]
    sequence = waiting(1, external=1)
    parked, rest = connector.park(config(**LOADS), Pool(8), sequence, (), 1)
    for _ in range(2):
        parked, rest = connector.finish_load(config(**LOADS), rest, parked, ())
        assert (parked.computed, len(parked.blocks)) == (0, 1)


@pytest.mark.parametrize(
    ("external", "hit", "tokens"),
    [(0, (), 0), (3, (), 0), (4, (), 4), (9, (), 8), (10, (), 10), (8, (1,), 4), (4, (1,), 0)],
)
def test_whole_blocks_are_offered_or_all_behind_what_is_cached(external, hit, tokens):
    assert connector.offered(config(), waiting(10, external=external), hit) == tokens
    again = waiting(10, external=external, was_loaded=True)
    assert connector.offered(config(), again, hit) == 0


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_parked_request_joins_when_its_load_has_landed(steps):
    seen = run(steps + 3, loaded("a", 10, 8, steps))
    parked, last = seen[: steps + 1], seen[steps + 1]
    assert [step["parked"] for step in parked] == [["a"]] * (steps + 1)
    assert [step["blocks"] for step in parked] == [parked[0]["blocks"]] * (steps + 1)
    assert len(parked[0]["blocks"]["a"]) == 2
    assert (last["scheduled"], last["emitted"], last["parked"]) == ({"a": 2}, {"a": 1}, [])
    assert seen[-1]["finished"] == {"a": "length"}


def test_of_a_prompt_that_is_loaded_whole_the_last_token_is_computed():
    assert scheduled(run(3, loaded("a", 8, 8))) == [{}, {"a": 1}, {"a": 1}]


def test_others_run_while_one_is_loaded():
    seen = run(3, loaded("a", 8, 8, 1), request("b", 4))
    assert scheduled(seen) == [{"b": 4}, {"b": 1}, {"a": 1}]
    assert [step["waiting"] for step in seen] == [["a"], ["a"], []]


def test_loaded_blocks_are_found_by_others_once_they_have_landed():
    requests = [loaded("a", 9, 8, 1), {**request("b", 9), "prompt": [["a", 9]]}]
    seen = run(3, *requests, enable_prefix_caching=True, max_num_batched_tokens=2, num_blocks=20)
    assert seen[1]["scheduled"] == {"b": 2}
    late = run(4, requests[0], enable_prefix_caching=True)
    assert late[2]["prefix_hit"] == {"a": 8}


def test_who_holds_blocks_goes_before_the_more_important():
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS, "policy": "priority"})["ok"]
    assert target.add(loaded("a", 8, 8, priority=5))["ok"]
    target.step()
    assert target.add(request("b", 8, priority=-1))["ok"]
    assert list(target.step()["step"]["scheduled"].items()) == [("a", 1), ("b", 7)]


def test_no_load_takes_what_a_parked_request_needs():
    """Of 8 blocks r0 holds 2 and needs 3 more; r1 wants 4."""
    seen = run(3, loaded("r0", 17, 8, 1), loaded("r1", 16, 16), num_blocks=8)
    assert seen[0]["parked"] == ["r0"]
    assert connector.promised_blocks(config(), [decoding("a", 5, 1), waiting(8)]) == 3


@pytest.mark.parametrize("inside", [False, True])
def test_blocks_of_an_aborted_load_are_free_when_it_has_landed(inside):
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS})["ok"]
    assert target.add(loaded("a", 8, 8, 3))["ok"]
    target.step()
    assert target.abort("a", inside)["ok"]
    seen = [target.step()["step"] for _ in range(3)]
    assert seen[0]["finished"] == {"a": "aborted"}
    assert [step["free_blocks"] for step in seen] == [6, 6, 8]
    assert [step["parked"] for step in seen] == [[], [], []]
    assert seen[-1]["blocks"] == {}


def test_a_request_that_has_landed_gives_its_blocks_back_at_once():
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS, "max_num_seqs": 1})["ok"]
    for arrival in (loaded("a", 8, 8), request("b", 4, 9)):
        assert target.add(arrival)["ok"]
    target.step()
    assert target.abort("a")["ok"]
    assert "a" not in target.step()["step"]["blocks"]


def test_parking_needs_room_for_all_that_is_known():
    """Also where an admission needs room for its first chunk only: it cannot be preempted."""
    sequence = waiting(12, external=8, load_steps=2)
    for whole, free, fits in (
        (True, 3, True),
        (True, 2, False),
        (False, 3, True),
        (False, 2, False),
    ):
        settings = config(reserve_full_isl=whole, num_blocks=8)
        plan = Plan((), (), pool(8, 8 - free), 16, {})
        assert connector.has_room(settings, plan, sequence, (), 8) is fits
    parked, rest = connector.park(config(), Pool(None), sequence, (), 8)
    assert (parked.computed, parked.loading, parked.was_loaded) == (8, 2, True)
    assert len(parked.blocks) == 2
    assert rest != Pool(None)


@pytest.mark.parametrize(
    ("fails_at", "computes"), [(None, 1), (8, 1), (7, 4), (4, 4), (3, 8), (0, 8)]
)
def test_what_has_failed_is_computed(fails_at, computes):
    """Two blocks of four are loaded; a block that failed in part is computed whole."""
    seen = run(2, loaded("a", 8, 8, load_fails_at=fails_at))
    assert scheduled(seen) == [{}, {"a": computes}]
    assert len(seen[1]["blocks"]["a"]) == 2


def test_of_a_load_that_failed_from_the_start_no_block_is_kept():
    """b runs, and leaves too few blocks for a to start again."""
    requests = [request("b", 4, 20), loaded("a", 16, 16, load_fails_at=0)]
    seen = run(3, *requests, num_blocks=8, watermark=0.4)
    assert [step["parked"] for step in seen] == [["a"], [], []]
    assert [step["waiting"] for step in seen] == [["a"], ["a"], ["a"]]
    assert "a" not in seen[1]["blocks"]


@pytest.mark.parametrize(
    ("fails_at", "load_steps", "ends_in"), [(6, 0, 0), (0, 2, 2), (8, 1, None), (None, 1, None)]
)
def test_a_request_whose_load_has_failed_ends_where_the_policy_says_so(
    fails_at, load_steps, ends_in
):
    """It keeps no block, and is not sent; a load of which every token is right has not failed."""
    load = loaded("a", 8, 8, load_steps, load_fails_at=fails_at, send_steps=3)
    seen = run(6, load, kv_load_failure_policy="fail")
    errors = [step for step, shown in enumerate(seen) if shown["finished"].get("a") == "error"]
    assert errors == ([] if ends_in is None else [ends_in])
    if ends_in is not None:
        assert [step["emitted"] for step in seen] == 6 * [{}]
        assert (seen[ends_in]["blocks"], seen[ends_in]["free_blocks"]) == ({}, 8)
    else:
        assert [step["finished"] for step in seen if step["finished"]] == [{"a": "length"}]


def test_without_a_word_what_has_failed_is_computed():
    plain = read_config({"kv_connector": True}, "documented")
    settings = {"kv_connector": True, "kv_load_failure_policy": "recompute"}
    assert read_config(settings, "documented") == plain
    with pytest.raises(InputError, match=r"\$\.config\.kv_load_failure_policy"):
        read_config({**settings, "kv_load_failure_policy": "ignore"}, "documented")


def test_while_an_answer_is_deferred_others_go():
    seen = run(4, loaded("a", 8, 8, load_deferrals=2), request("b", 4))
    assert [step["parked"] for step in seen] == [[], [], ["a"], []]
    assert scheduled(seen) == [{"b": 4}, {"b": 1}, {}, {"a": 1}]


@pytest.mark.parametrize(("steps", "held"), [(None, 0), (0, 1), (2, 3)])
def test_blocks_of_a_request_that_has_ended_are_sent(steps, held):
    seen = run(6, request("a", 8, 1, send_steps=steps))
    assert seen[0]["finished"] == {"a": "length"}
    assert [step["free_blocks"] for step in seen] == [6] * held + [8] * (6 - held)


def test_a_client_that_gives_up_is_sent_nothing():
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS})["ok"]
    assert target.add(request("a", 8, 9, send_steps=5))["ok"]
    target.step()
    assert target.abort("a")["ok"]
    assert target.step()["step"]["free_blocks"] == 8


AHEAD = {"async_scheduling": True}


@pytest.mark.parametrize("inside", [False, True])
def test_blocks_that_a_decision_on_its_way_writes_are_free_when_it_completes(inside):
    """a is computed in step 0, and also in step 1 if the abort comes inside it."""
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS, **AHEAD})["ok"]
    for arrival in (request("a", 4, 9), request("b", 4, 9)):
        assert target.add(arrival)["ok"]
    target.step()
    assert target.abort("a", inside)["ok"]
    seen = [target.step()["step"] for _ in range(3)]
    assert seen[0]["finished"] == {"a": "aborted"}
    held = ["a" in step["blocks"] for step in seen]
    assert held == ([True, False, False] if inside else [False, False, False])
    assert all(
        len({n for its in step["blocks"].values() for n in its}) + step["free_blocks"] == 8
        for step in seen
    )


def test_without_a_connector_they_are_free_at_once():
    flights: tuple[Flight, ...] = ({"a": Coming(0)},)
    assert connector.is_written(flights, decoding("a", 5, 1))
    assert not connector.is_written((), decoding("a", 5, 1))
    computed = State(running=(decoding("a", 5, 1),), pool=pool(8, 1), in_flight=flights)
    kept = scheduler.abort(config(**LOADS, **AHEAD), computed, "a")
    freed = scheduler.abort(config(**AHEAD), computed, "a")
    assert [len(state.leaving) for state in (kept, freed)] == [1, 0]
    assert [free_blocks(state.pool) for state in (kept, freed)] == [7, 8]


def test_no_request_is_preempted_whose_blocks_would_have_to_wait():
    """a and b hold two blocks of four each; the fifth of either must wait until both decisions
    have completed that compute b."""
    requests = [request("a", 7, 9), request("b", 7, 9)]
    small = {"num_blocks": 4, "max_num_batched_tokens": 16, "max_model_len": 16, **AHEAD}
    seen = run(5, *requests, **small)
    assert [step["scheduled"] for step in seen[:3]] == [{"a": 7, "b": 7}, {"a": 1, "b": 1}, {}]
    assert [step["preempted"] for step in seen] == [[], [], [], ["b"], []]
    assert seen[3]["scheduled"] == {"a": 1}


def test_a_load_goes_on_where_the_worker_reports():
    """The first decision of two in flight brings no report."""
    seen = run(4, request("b", 4, 9), loaded("a", 8, 8, 1), **AHEAD)
    assert [step["parked"] for step in seen] == [["a"], ["a"], ["a"], []]
    assert "a" in seen[3]["scheduled"]


NOW = {"synchronous_loads": True}


def test_a_synchronous_load_leaves_a_token_for_the_step_that_starts_the_request():
    [first] = run(1, loaded("a", 8, 8), **NOW)
    assert first["scheduled"] == {"a": 1}
    assert first["emitted"] == {"a": 1}
    assert first["parked"] == []
    assert len(first["blocks"]["a"]) == 2


def test_a_request_loads_at_its_first_admission_only():
    """Preempted, it computes its tokens, as one whose blocks were loaded between steps does."""
    more = {"num_blocks": 3, "max_num_seqs": 2, "max_model_len": 12}
    steps = run(4, loaded("a", 4, 4, tokens=5), loaded("b", 8, 8, tokens=1), **NOW, **more)
    assert steps[0]["scheduled"] == {"a": 1, "b": 1}
    again = run(3, loaded("a", 7, 0, tokens=5), loaded("b", 4, 4, tokens=5), **NOW, **more)
    assert again[0]["scheduled"] == {"a": 7, "b": 1}
    assert again[1]["preempted"] == ["b"]


def test_requests_that_use_a_failed_synchronous_load_go_back_to_the_failed_block():
    caching = {"enable_prefix_caching": True}
    fails = loaded("a", 8, 8, load_fails_at=5)
    finds = request("b", 8) | {"prompt": [["a", 8], ["b", 1]]}
    first, second = run(2, fails, finds, **NOW, **caching)
    assert first["scheduled"] == {"a": 1, "b": 1}
    assert first["computed"] == {"a": 4, "b": 4}
    assert first["emitted"] == {}
    assert second["scheduled"] == {"a": 4, "b": 4}


def test_they_end_under_the_policy_that_ends_requests():
    more = {"enable_prefix_caching": True, "kv_load_failure_policy": "fail"}
    finds = request("b", 8) | {"prompt": [["a", 8], ["b", 1]]}
    [first] = run(1, loaded("a", 8, 8, load_fails_at=5), finds, **NOW, **more)
    assert first["finished"] == {"a": "error", "b": "error"}
    assert first["free_blocks"] == SMALL["num_blocks"]


def test_nothing_is_found_in_blocks_of_a_failed_load_if_the_request_is_aborted():
    target = ModelTarget()
    config = {**SMALL, **LOADS, **NOW, "enable_prefix_caching": True}
    assert target.start("vllm", "documented", config)["ok"]
    assert target.add(loaded("a", 8, 8, load_fails_at=5))["ok"]
    assert target.step()["step"]["computed"] == {"a": 4}
    target.abort("a")
    assert target.add(request("b", 8) | {"prompt": [["a", 8], ["b", 1]]})["ok"]
    assert target.step()["step"]["prefix_hit"] == {"b": 4}


def test_failed_synchronous_loads_are_not_modelled_with_several_decisions_in_flight():
    fails = Request(id="a", arrival=0, prompt=(("a", 8),), max_tokens=1, load_fails_at=0)
    both = {**LOADS, **NOW}
    assert not [*unsupported(fails, both)]
    [(field, _)] = unsupported(fails, {**both, "async_scheduling": True})
    assert field == "load_fails_at"


def test_synchronous_loads_need_a_connector():
    with pytest.raises(InputError, match="true without a kv_connector"):
        read_config(NOW, "documented")


@pytest.mark.parametrize(("load_steps", "send_steps", "held"), [(1, 3, 3), (3, 1, 3), (0, 0, 0)])
def test_an_aborted_request_keeps_its_blocks_until_they_are_loaded_and_sent(
    load_steps, send_steps, held
):
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS})["ok"]
    more = {"send_steps": send_steps, "send_aborted": True}
    assert target.add(loaded("a", 8, 8, load_steps, **more))["ok"]
    target.abort("a", inside=True)
    seen = [target.step()["step"]["blocks"] for _ in range(5)]
    assert ["a" in blocks for blocks in seen] == [step < held for step in range(5)]


def test_blocks_that_were_sent_stay_in_use_while_a_decision_writes_to_them():
    """The abort comes in the step in which a is computed; sending its block takes no step."""
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS, **AHEAD})["ok"]
    assert target.add(request("a", 1, 2, send_steps=0, send_aborted=True))["ok"]
    target.step()
    target.abort("a", inside=True)
    seen = [target.step()["step"]["blocks"] for _ in range(3)]
    assert ["a" in blocks for blocks in seen] == [True, False, False]


def test_an_aborted_request_without_blocks_sends_nothing():
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **LOADS})["ok"]
    assert target.add(request("a", 8, send_steps=2, send_aborted=True))["ok"]
    target.abort("a")
    assert target.step()["step"]["blocks"] == {}
