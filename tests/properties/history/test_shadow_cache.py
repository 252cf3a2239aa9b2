"""A block that a request reads holds its own tokens, or the first that does not is named."""

import pytest

from schedproof.model.observation import Sent, Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.history.shadow_cache import ShadowCache

CONFIG = full_config(
    "spyre", "sound", {"block_size": 4, "chunk_size": 8, "prefix_caching": True, "num_blocks": 8}
)


class ObservedRun:
    """A run that is shown step by step: what each step computes, and the blocks after it."""

    def __init__(self, **prompts):
        self.history = RunHistory(CONFIG, "sound", "spyre", shadow=ShadowCache(4))
        for name, prompt in prompts.items():
            self.history.accept(Request(id=name, arrival=0, prompt=prompt, max_tokens=20))

    def step(self, computes, blocks, **more):
        """The conflict of the step."""
        live = self.history.live
        done = [n for n, tokens in computes.items() if live[n].computed + tokens >= live[n].prompt]
        fields = {"emitted": dict.fromkeys(done, 1), "finished": {}, "prefix_hit": {}} | more
        step = Step(kind="mixed", scheduled=computes, blocks=blocks, **fields)  # type: ignore[arg-type]
        changes = self.history.cache_changes(step)
        self.history.observe(step)
        assert changes is not None
        return changes.conflict


def test_a_request_that_fills_its_own_blocks_reads_its_own_tokens():
    run = ObservedRun(a=(("a", 6),))
    assert run.step({"a": 6}, {"a": [1, 2]}) is None
    for table in ([1, 2], [1, 2], [1, 2, 3], [1, 2, 3]):
        assert run.step({"a": 1}, {"a": table}) is None


def test_one_block_for_everything_is_named():
    run = ObservedRun(a=(("a", 6),))
    assert run.step({"a": 6}, {"a": [1, 1]}) == (
        "a reads its tokens 0 to 3 from block 1, which holds tokens 4 to 5 of a"
    )


def test_a_request_that_listed_one_block_twice_may_leave():
    run = ObservedRun(a=(("a", 8),))
    run.step({"a": 8}, {"a": [1, 1]})
    assert run.step({}, {}, finished={"a": "length"}) is None


def test_two_requests_that_write_one_private_block_are_named():
    run = ObservedRun(a=(("a", 3),), b=(("b", 3),))
    assert run.step({"a": 3}, {"a": [1]}) is None
    assert run.step({"b": 3}, {"a": [1], "b": [1]}) is None  # a's next step reads it
    assert run.step({"a": 1}, {"a": [1], "b": [1]}) == (
        "a reads its tokens 0 to 3 from block 1, which holds tokens 3 to 3 of a"
    )


def test_a_block_that_another_request_goes_on_reading_is_not_written():
    run = ObservedRun(a=(("a", 4),), b=(("b", 4),))
    assert run.step({"a": 4}, {"a": [1]}) is None
    assert run.step({"b": 4}, {"a": [1], "b": [1]}) == (
        "a reads its tokens 0 to 3 from block 1, which holds tokens 0 to 3 of b: "
        "their tokens differ from token 0 on"
    )


def test_a_hit_on_blocks_that_hold_the_same_beginning_is_right():
    run = ObservedRun(a=(("s", 8), ("a", 1)), b=(("s", 8), ("b", 2)))
    assert run.step({"a": 9}, {"a": [1, 2, 3]}) is None
    hit = {"prefix_hit": {"b": 8}}
    assert run.step({"b": 2}, {"a": [1, 2, 3], "b": [1, 2, 4]}, **hit) is None


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([2, 1, 4], "b reads its tokens 0 to 3 from block 2, which holds tokens 4 to 7 of a"),
        ([1, 3, 4], "b reads its tokens 4 to 7 from block 3, which holds tokens 8 to 8 of a"),
        ([1, 5, 4], "b reads its tokens 4 to 7 from block 5, which no request has written"),
    ],
)
def test_a_hit_on_any_other_block_is_named(blocks, says):
    run = ObservedRun(a=(("s", 8), ("a", 1)), b=(("s", 8), ("b", 2)))
    assert run.step({"a": 9}, {"a": [1, 2, 3]}) is None
    table = {"a": [1, 2, 3], "b": blocks}
    assert run.step({"b": 2}, table, prefix_hit={"b": 8}) == says


def test_a_freed_block_may_go_to_any_request_and_a_stale_name_is_seen():
    run = ObservedRun(a=(("s", 4), ("a", 1)), b=(("b", 4),), c=(("s", 4), ("c", 1)))
    assert run.step({"a": 5}, {"a": [1, 2]}) is None
    run.history.abort("a", inside=False)
    assert run.step({"b": 4}, {"b": [1]}, finished={"a": "aborted"}) is None
    table = {"b": [1], "c": [1, 3]}
    assert run.step({"c": 1}, table, prefix_hit={"c": 4}) == (
        "c reads its tokens 0 to 3 from block 1, which holds tokens 0 to 3 of b: "
        "their tokens differ from token 0 on"
    )


def test_a_token_that_is_written_to_a_block_of_another_place_is_missed_by_its_reader():
    run = ObservedRun(a=(("a", 4),))
    assert run.step({"a": 4}, {"a": [1]}) is None
    assert run.step({"a": 1}, {"a": [1, 2]}, slot_blocks={"a": [1]}) == (
        "a reads its tokens 4 to 4 from block 2, which no request has written"
    )


def test_a_block_that_a_request_gets_a_second_time_is_named():
    run = ObservedRun(a=(("a", 4),))
    assert run.step({"a": 4}, {"a": [1]}) is None
    assert run.step({"a": 1}, {"a": [1, 1]}) == (
        "a reads its tokens 0 to 3 from block 1, which holds tokens 4 to 4 of a"
    )


def test_what_was_written_to_blocks_that_were_not_shown_may_be_found_anywhere():
    run = ObservedRun(a=(("s", 4), ("a", 1)), b=(("s", 4), ("b", 1)))
    assert run.step({"a": 5}, {}, finished={"a": "eos"}, emitted={"a": 1}) is None
    assert run.step({"b": 1}, {"b": [7, 3]}, prefix_hit={"b": 4}) is None


def test_a_preempted_request_computes_its_tokens_again_in_other_blocks():
    run = ObservedRun(a=(("a", 5),))
    assert run.step({"a": 5}, {"a": [1, 2]}) is None
    assert run.step({}, {}, preempted=["a"]) is None
    assert run.step({"a": 6}, {"a": [3, 4]}) is None


def test_tokens_in_a_block_that_was_not_shown_are_not_in_one_that_was_written_since():
    """The first request starts and ends in one step, so that its blocks are never shown."""
    run = ObservedRun(a=(("p", 4), ("a", 2)), b=(("b", 6),), c=(("p", 4), ("c", 2)))
    run.step({"a": 6}, {}, finished={"a": "length"})
    assert run.step({"b": 6}, {"b": [1, 2]}) is None
    assert run.step({"c": 2}, {"b": [1, 2], "c": [1, 3]}, prefix_hit={"c": 4}) == (
        "c reads its tokens 0 to 3 from block 1, which holds tokens 0 to 3 of b: their tokens "
        "differ from token 0 on"
    )


def test_tokens_in_a_block_that_was_not_shown_may_be_in_one_that_was_written_before():
    run = ObservedRun(a=(("p", 4), ("a", 2)), b=(("b", 6),), c=(("p", 4), ("c", 2)))
    assert run.step({"b": 6}, {"b": [1, 2]}) is None
    run.step({}, {}, finished={"b": "aborted"})
    run.step({"a": 6}, {}, finished={"a": "length"})
    assert run.step({"c": 2}, {"c": [1, 3]}, prefix_hit={"c": 4}) is None


def test_what_the_worker_is_told_shows_the_blocks_of_a_request_that_ends_at_once():
    run = ObservedRun(a=(("p", 4), ("a", 2)), c=(("p", 4), ("c", 2)))
    sent = Sent(computed={"a": 0}, new=("a",), blocks={"a": ((4, 5),)})
    run.step({"a": 6}, {}, finished={"a": "length"}, sent=sent)
    assert run.step({"c": 2}, {"c": [1, 3]}, prefix_hit={"c": 4}) == (
        "c reads its tokens 0 to 3 from block 1, which no request has written"
    )
