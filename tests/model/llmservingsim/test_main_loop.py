"""The main loop around the models: the time of requests, the jump of the clock, the end, and the
instance that decodes."""

import pytest

from schedproof.model.target import ModelTarget

CONFIG = {
    **{"block_size": 4, "num_blocks": 8, "max_num_seqs": 4, "max_num_batched_tokens": 16},
    **{"long_prefill_token_threshold": 0, "enable_chunked_prefill": True},
    **{"enable_prefix_caching": True, "prioritize_prefill": False, "pp_size": 1, "instances": 1},
}


@pytest.fixture(params=["documented", "head"])
def run(request):
    return lambda **changes: Run(request.param, {**CONFIG, **changes})


class Run:
    """A model behind the protocol."""

    def __init__(self, revision, config):
        self.target = ModelTarget()
        assert self.target.start("llmservingsim", revision, config)["ok"]

    def ask(self, name, max_tokens=1, says=None, **more):
        prompt = [[says or name, 8]]
        return self.target.add({"id": name, "prompt": prompt, "max_tokens": max_tokens, **more})

    def steps(self, count, *fields):
        steps = [self.target.step()["step"] for _ in range(count)]
        return [tuple(step[field] for field in fields) for step in steps]


def test_a_request_waits_behind_the_others_until_its_tool_is_done(run):
    made = run()
    made.ask("late", tool_steps=2)
    made.ask("a", max_tokens=4)
    assert made.steps(3, "scheduled", "waiting", "deferred") == [
        ({"a": 8}, ["late"], ["late"]),
        ({"a": 1}, ["late"], []),
        ({"a": 1, "late": 8}, [], []),
    ]


def test_if_only_tools_run_the_clock_jumps_to_the_first_request_due(run):
    made = run()
    made.ask("last", tool_steps=40)
    made.ask("first", tool_steps=30)
    assert made.steps(3, "scheduled", "deferred") == [
        ({}, ["last"]),
        ({"first": 8}, ["last"]),
        ({}, []),
    ]


def test_the_clock_does_not_jump_while_a_batch_is_in_flight(run):
    made = run(pp_size=2)
    made.ask("late", tool_steps=30)
    made.ask("a")
    deferred = made.steps(3, "finished", "deferred")
    assert deferred == [({}, ["late"]), ({"a": "length"}, ["late"]), ({}, [])]


def test_the_simulation_ends_in_the_first_step_with_nothing_left(run):
    made = run()
    made.ask("a", max_tokens=2)
    assert made.steps(4, "over") == [(False,), (False,), (True,), (True,)]


def test_the_next_request_begins_another_simulation_with_an_empty_cache(run):
    made = run()
    made.ask("a", says="s")
    made.steps(2)
    made.ask("b", says="s")
    assert made.steps(1, "scheduled") == [({"b": 8},)]


def test_the_decoding_instance_gets_who_has_finished_and_counts_their_tokens(run):
    made = run(instances=2)
    made.ask("a")
    made.ask("b")
    assert made.steps(2, "finished", "handed_over", "decode_throughput", "over") == [
        ({"a": "length", "b": "length"}, ["a", "b"], 0, False),
        ({}, [], 0, True),
    ]


def test_an_aborted_request_is_no_more_kept_and_is_not_handed_over(run):
    made = run()
    made.ask("a", tool_steps=9)
    made.target.abort("a")
    assert made.steps(1, "finished", "deferred", "over") == [({"a": "aborted"}, [], True)]
    made = run(instances=2)
    made.ask("b")
    made.target.abort("b", True)
    assert made.steps(1, "finished", "handed_over") == [({"b": "aborted"}, [])]


def test_without_a_main_loop_no_request_waits_for_a_tool(run):
    reply = run(instances=0).ask("a", tool_steps=1)
    assert reply["message"] == "tool_steps needs instances 1"
