"""What is read from the messages to a worker, for both model runners."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.vllm import worker


def scheduler(*, second=False, stages=1, ahead=False):
    config = SimpleNamespace(async_scheduling=ahead)
    return SimpleNamespace(use_v2_model_runner=second, use_pp=stages > 1, scheduler_config=config)


def decision(**changes):
    """A decision: `n` is new, `r` resumes, `k` goes on, `e` has ended, and `p` is preempted."""
    cached = SimpleNamespace(
        req_ids=["k", "r"],
        resumed_req_ids={"r"},
        new_block_ids=[None, ([7, 8],)],
        num_computed_tokens=[9, 0],
        new_token_ids=[[1], [1, 2, 3]],
    )
    new = SimpleNamespace(
        req_id="n",
        num_computed_tokens=4,
        block_ids=([1, 2],),
        prompt_token_ids=[1] * 6,
        prefill_token_ids=None,
    )
    values = {
        "scheduled_new_reqs": [new],
        "scheduled_cached_reqs": cached,
        "scheduled_spec_decode_tokens": {"k": [5, 5]},
        "finished_req_ids": {"e"},
        "preempted_req_ids": {"p"},
    }
    return SimpleNamespace(**values | changes)


def test_whole_requests_and_new_blocks_are_shown():
    assert worker.message_to_worker(scheduler(), decision(), {}) == {
        "computed": {"k": 9, "r": 0, "n": 4},
        "new": ["n"],
        "resumed": ["r"],
        "blocks": {"r": [[7, 8]], "n": [[1, 2]]},
        "dropped": ["e"],
    }


@pytest.mark.parametrize(("preempted", "dropped"), [({"p"}, ["e", "n", "p"]), (None, ["e", "n"])])
def test_the_second_model_runner_also_forgets_preempted_and_earlier_requests(preempted, dropped):
    shown = worker.message_to_worker(
        scheduler(second=True), decision(preempted_req_ids=preempted), {}
    )
    assert shown["dropped"] == dropped


def test_tokens_are_sent_only_in_a_pipeline_that_does_not_decide_ahead():
    shown = worker.message_to_worker(scheduler(stages=2), decision(), {})
    assert shown["tokens"] == {"n": 6, "k": 12, "r": 3}
    assert "tokens" not in worker.message_to_worker(scheduler(stages=2, ahead=True), decision(), {})


def test_drafts_are_counted_and_only_those_that_the_worker_has_to_fill_in_are_placeholders():
    made = decision(scheduled_spec_decode_tokens={"k": [-1, -1], "n": [-1]})
    drafter = scheduler()
    drafter.num_spec_tokens = 2
    assert "drafts" not in worker.message_to_worker(scheduler(), made, {})
    shown = worker.message_to_worker(drafter, made, {})
    assert (shown["drafts"], "placeholders" in shown) == ({"k": 2, "n": 1}, False)
    drafter.scheduler_config.async_scheduling = True
    shown = worker.message_to_worker(drafter, made, {})
    assert (shown["drafts"], shown["placeholders"]) == ({"k": 2, "n": 1}, ["k"])


def test_what_is_shown_does_not_change_when_the_worker_appends_blocks():
    made = decision()
    shown = worker.message_to_worker(scheduler(), made, {})
    made.scheduled_new_reqs[0].block_ids[0].append(3)
    assert shown["blocks"]["n"] == [[1, 2]]


def feature(data):
    return SimpleNamespace(data=data)


def test_the_data_of_encoder_inputs_is_sent_with_a_new_request_or_later_and_is_discarded():
    made = decision(encoder_input_updates={"k": {0: None, 1: {}}})
    [new] = made.scheduled_new_reqs
    new.mm_features = [feature(None), feature({})]
    shown = worker.message_to_worker(scheduler(), made, {"n": (2, 5), "k": (1, 3)})
    assert (shown["inputs"], shown["released"]) == ({"n": [5], "k": [3]}, {"k": [1]})
    new.mm_features = []
    shown = worker.message_to_worker(scheduler(), decision(scheduled_new_reqs=[new]), {"k": (1,)})
    assert shown["inputs"] == {}
    assert "released" not in shown
