"""What a record says about a vLLM scheduler and its requests, without vLLM."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from schedproof.gate.targets.protocol_checks import Output, RefusedError
from schedproof.gate.targets.vllm import cache_events
from schedproof.gate.targets.vllm.drafts import Drafts
from schedproof.gate.targets.vllm.in_flight import Flight, Flights, depth
from schedproof.gate.targets.vllm.loads import Loads, Offer, Report
from schedproof.gate.targets.vllm.observation import SchedulerView
from schedproof.gate.targets.vllm.recorder import (
    NOT_IN_SCENARIOS,
    RecordEnds,
    block_changes,
    config_of,
    request_of,
)
from schedproof.gate.targets.vllm.releases import SCALES
from schedproof.gate.targets.vllm.target import blocks_for, plenty_of_blocks
from schedproof.properties.search.workloads import shapes_of, workloads


class FullAttentionManager:
    block_size = 16


class SlidingWindowManager(FullAttentionManager):
    pass


def scheduler(*managers, transfers=None, **options):
    usual = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "policy": "fcfs",
    }
    cache = SimpleNamespace(block_size=16, enable_prefix_caching=True)
    vllm_config = SimpleNamespace(
        kv_transfer_config=transfers,
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        cache_config=cache,
        model_config=SimpleNamespace(max_model_len=128),
    )
    kept = SimpleNamespace(
        coordinator=SimpleNamespace(single_type_managers=managers or (FullAttentionManager(),)),
        block_pool=SimpleNamespace(num_gpu_blocks=33),
    )
    return SimpleNamespace(
        vllm_config=vllm_config,
        scheduler_config=SimpleNamespace(**{**usual, **options}),
        kv_cache_manager=kept,
    )


def request(**more):
    return SimpleNamespace(request_id="a", max_tokens=3, priority=-1, **more)


def test_the_null_block_is_not_counted_and_options_that_a_release_lacks_are_off():
    config = config_of(scheduler())
    assert (config["num_blocks"], config["watermark"], config["reserve_full_isl"]) == (32, 0, False)
    assert not {"async_scheduling", "pipeline_parallel_size", "num_speculative_tokens"} & {*config}


def test_what_is_in_flight_is_said():
    assert config_of(scheduler(async_scheduling=True))["async_scheduling"] is True


def test_limits_that_a_server_sets_are_recorded():
    limits = {"max_num_active_seqs": 2, "long_prefill_token_threshold_adaptive": True}
    assert limits.items() <= config_of(scheduler(**limits)).items()
    assert not limits.keys() & config_of(scheduler()).keys()


def test_drafts_that_are_decided_ahead_end_the_record():
    drafting = scheduler(async_scheduling=True)
    drafting.num_spec_tokens = 2
    with pytest.raises(RecordEnds, match="it is not known yet which drafts are correct"):
        config_of(drafting)
    drafting.scheduler_config.async_scheduling = False
    assert config_of(drafting)["num_speculative_tokens"] == 2


def test_a_request_has_an_id_a_bound_and_a_priority():
    unset = dict.fromkeys(NOT_IN_SCENARIOS)
    assert request_of(request(**unset)) == {"id": "a", "max_tokens": 3, "priority": -1}


@pytest.mark.parametrize("attribute", NOT_IN_SCENARIOS)
def test_a_request_that_waits_for_more_than_its_turn_ends_the_record(attribute):
    with pytest.raises(RecordEnds, match=f"a {NOT_IN_SCENARIOS[attribute]}"):
        request_of(request(**{attribute: [1]}))


@pytest.mark.parametrize(
    ("managers", "said"),
    [
        ((SlidingWindowManager(),), "SlidingWindowManager"),
        ((FullAttentionManager(), SlidingWindowManager()), "SlidingWindowManager"),
        ((SimpleNamespace(block_size=32),), "SimpleNamespace"),
    ],
)
def test_blocks_that_are_kept_otherwise_end_the_record(managers, said):
    with pytest.raises(RecordEnds, match=said):
        config_of(scheduler(*managers))


def test_a_connector_ends_the_record():
    with pytest.raises(RecordEnds, match="connector"):
        config_of(scheduler(transfers=object()))


def flight(**tokens):
    decision: Any = SimpleNamespace(num_scheduled_tokens=tokens, scheduled_spec_decode_tokens={})
    return Flight(decision, None, dict.fromkeys(tokens, 0))


@pytest.mark.parametrize(
    ("config", "most"),
    [
        ({}, 1),
        ({"async_scheduling": True}, 2),
        ({"pipeline_parallel_size": 3}, 3),
        ({"async_scheduling": True, "pipeline_parallel_size": 3}, 3),
    ],
)
def test_so_many_are_on_their_way_at_most(config, most):
    assert depth(config) == most


def test_alone_each_decision_completes_at_once_an_empty_one_too():
    flights, pending, empty = Flights(1), flight(a=1), flight()
    assert flights.set_off(pending) is pending
    assert flights.set_off(empty) is empty


def test_the_oldest_completes_when_the_queue_is_full_or_nothing_was_decided():
    flights = Flights(3)
    first, second, third = flight(a=1), flight(b=1), flight(c=1)
    assert [flights.set_off(result) for result in (first, second)] == [None, None]
    assert flights.set_off(third) is first
    assert [flights.set_off(flight()) for _ in range(2)] == [second, third]


def test_the_oldest_completes_if_a_decision_waits_for_a_token_in_flight():
    flights = Flights(3)
    first, second = flight(a=1), flight(a=1)
    assert flights.set_off(first) is None
    assert flights.set_off(second, waits=True) is first


def test_a_fast_worker_completes_so_many_in_a_row_before_one_more_stays():
    flights = Flights(3, early=2)
    made = [flight(a=1) for _ in range(7)]
    done = [flights.set_off(result) for result in made]
    assert done == [made[0], made[1], None, made[2], made[3], None, made[4]]
    assert flights.set_off(flight()) is made[5]


def test_a_server_says_which_decision_completed():
    flights = Flights(3)
    first, second, third, empty = flight(a=1), flight(b=1), flight(c=1), flight()
    assert [flights.take(launched) for launched in (first, second, third)] == [False, False, True]
    assert flights.completed(second.decision) is None
    assert flights.completed(first.decision) is first
    assert flights.take(empty)
    assert [flights.completed(launched.decision) for launched in (second, third)] == [second, third]
    assert flights.completed(empty.decision) is None


def test_an_empty_decision_that_a_server_did_not_wait_for_is_forgotten():
    flights, launched = Flights(2), flight(a=1)
    assert flights.take(flight())
    assert not flights.take(launched)
    assert flights.completed(launched.decision) is launched


def test_a_worker_knows_what_it_has_sampled_and_a_request_that_joins_is_sent_whole():
    flights, request = Flights(2), SimpleNamespace(num_tokens=5)
    assert flights.known("a", request, joins=True) == 5
    flights.sampled("a", 1)
    assert flights.known("a", request, joins=False) == 6
    flights.set_off(flight(a=1))
    assert flights.tokens_in_flight("a") == 1
    assert flights.known("a", request, joins=True) == 5


def test_a_dropped_result_with_drafts_is_no_verification():
    flights, drafts = Flights(2), Drafts({"num_speculative_tokens": 2})
    output = Output("a", 9, ends_with_eos=False, accepted=(2, 1))
    flights.set_off(flight(a=3)._replace(drafts={"a": drafts.count_right(output, 2)}))
    assert flights.drop({"a", "b"}) == ["a"]
    drafts.take_back("a")
    assert drafts.count_right(output, 2) == 2
    drafts.forget("a")
    assert drafts.count_right(output, 2) == 2


def test_a_load_takes_its_steps_and_is_offered_once():
    loads = Loads()
    loads.offers["a"] = Offer(8, 2)
    taken = SimpleNamespace(request_id="a", num_tokens=10)
    assert loads.offered(taken, 0, 4) == 8
    loads.begin("a", 8, 8)
    nothing = Report({}, {})
    reports = [loads.step() for _ in range(4)]
    assert reports == [nothing, nothing, Report({"a": 8}, {}), nothing]
    assert loads.offered(taken, 0, 4) == 0


@pytest.mark.parametrize(
    ("tokens", "computed", "offered"), [(9, 0, 8), (9, 4, 4), (10, 0, 10), (3, 0, 0), (4, 8, 0)]
)
def test_whole_blocks_are_offered_or_all(tokens, computed, offered):
    loads = Loads()
    loads.offers["a"] = Offer(tokens, 0)
    assert loads.offered(SimpleNamespace(request_id="a", num_tokens=10), computed, 4) == offered


@pytest.mark.parametrize(("fails_at", "right"), [(None, 12), (0, 4), (6, 6), (20, 12)])
def test_of_a_load_that_fails_what_was_there_before_is_right(fails_at, right):
    """Twelve tokens are covered, of which eight are loaded behind four from the prefix cache."""
    loads = Loads()
    loads.offers["a"] = Offer(12, 0, fails_at)
    loads.begin("a", 12, 8)
    assert loads.step().landed == {"a": right}


def test_an_answer_is_deferred_so_many_times():
    loads = Loads()
    loads.deferrals["a"] = 2
    assert [loads.defers("a") for _ in range(4)] == [True, True, False, False]
    assert not loads.defers("b")


def test_blocks_are_sent_unless_the_client_gave_up_or_the_load_has_failed():
    loads = Loads()
    loads.send_steps = {"a": 1, "b": 1}
    assert loads.ended("a", "FINISHED_LENGTH_CAPPED", has_blocks=True)
    assert not loads.ended("b", "FINISHED_ABORTED", has_blocks=True)
    loads.send_steps["d"] = 1
    assert not loads.ended("d", "FINISHED_ERROR", has_blocks=True)
    assert not loads.ended("c", "FINISHED_STOPPED", has_blocks=True)
    assert [[*loads.step().sent] for _ in range(3)] == [[], ["a"], []]


def test_transfers_that_end_together_are_reported_in_the_order_in_which_they_began():
    loads, names = Loads(), [f"r{number}" for number in range(9, 0, -1)]
    for name in names:
        loads.send_steps[name] = 0
        loads.offers[name] = Offer(4)
        loads.begin(name, 4, 4)
    for name in names:
        loads.ended(name, "FINISHED_STOPPED", True)
    report = loads.step()
    assert [*report.landed] == [*report.sent] == names


def test_blocks_of_an_aborted_request_are_sent_if_the_connector_began_with_them():
    loads = Loads()
    loads.send_steps, loads.send_aborted = {"a": 1, "b": 1}, {"a", "b"}
    assert loads.ended("a", "FINISHED_ABORTED", has_blocks=True)
    assert not loads.ended("b", "FINISHED_ABORTED", has_blocks=False)


class Block:
    """A block that counts how often its number is looked at."""

    looks = 0

    def __init__(self, number):
        self._number = number

    @property
    def block_id(self):
        Block.looks += 1
        return self._number


def test_blocks_that_did_not_change_are_not_looked_at_again():
    tables = {"a": [Block(n) for n in range(500)], "b": [Block(7)], "none": []}
    view = scheduler(SimpleNamespace(req_to_blocks=tables))
    seen = SchedulerView(view, {})
    first = seen.blocks()
    assert first == {"a": [*range(500)], "b": [7]}
    Block.looks = 0
    tables["b"].append(Block(8))
    second = seen.blocks()
    assert (second["b"], Block.looks) == ([7, 8], 2)
    assert second["a"] is first["a"]
    tables["a"][250] = Block(900)
    assert seen.blocks()["a"][250] == 900


def test_blocks_that_a_decision_in_flight_may_write_stay_with_their_request():
    kept = [Block(3), Block(4)]
    tables = {"a": kept, "b": [Block(7)]}
    view = scheduler(SimpleNamespace(req_to_blocks=tables))
    seen = SchedulerView(view, {})
    seen.blocks()
    del tables["a"]
    view.deferred_frees = [(0, kept)]
    assert seen.blocks() == {"b": [7], "a": [3, 4]}
    assert seen.blocks() == {"b": [7], "a": [3, 4]}
    view.deferred_frees = []
    assert seen.blocks() == {"b": [7]}


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        ({"a": [1, 2]}, {}),
        ({"a": [1, 2, 3]}, {"a": [2, [3]]}),
        ({"a": [1]}, {"a": [1, []]}),
        ({"a": [1, 9]}, {"a": [1, [9]]}),
        ({"a": [9, 2]}, {"a": [0, [9, 2]]}),
        ({"b": [5]}, {"a": None, "b": [0, [5]]}),
    ],
)
def test_a_step_says_how_blocks_changed(now, changes):
    assert block_changes({"a": [1, 2]}, now) == changes


@pytest.mark.parametrize("shape", shapes_of("vllm"))
def test_an_unbounded_pool_has_room_for_a_whole_workload(shape):
    fixed = {"num_blocks": None, "enable_prefix_caching": True}
    runs = workloads("vllm", "0.33", shape, SCALES.scales["tight"], fixed, seed=0, number=20)
    for run in runs:
        lengths = [request.prompt_len + request.max_tokens for request in run.requests]
        blocks = sum(blocks_for(length, run.config["block_size"]) for length in lengths)
        assert blocks <= plenty_of_blocks(run.config)


@pytest.mark.parametrize(
    ("with_events", "without", "refused"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_groups_are_refused_if_events_make_the_release_manage_one(with_events, without, refused):
    chosen, other = (
        SimpleNamespace(scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=disabled))
        for disabled in (with_events, without)
    )
    expected = pytest.raises(RefusedError, match="valid: none with several groups")
    with expected if refused else nullcontext():
        cache_events.check_groups("vllm 1", {"kv_cache_events": "full"}, chosen, other)
