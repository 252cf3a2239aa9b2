"""A request that goes first and who is left out, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import budget, main_loop, memory, queues
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.tests.mutants.faults import Edit, Fault
from schedproof.tests.mutants.planting import planted

from ...rules.tables import with_tables
from .build import book, ran, request

FIRST = {"prioritize_prefill": True}


def test_the_batch_is_in_the_order_of_arrival():
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab")
    assert queues.not_by_arrival(history, ran({"a": 1, "b": 4})) is None
    assert queues.not_by_arrival(history, ran({"b": 4, "a": 1})) == (
        "scheduled in the order b, a; expected a, b"
    )
    assert queues.both_phases(history, ran({}))


def test_nobody_who_has_started_is_passed_over():
    history = book(request("a", 6, 2), request("b", 6, 6, 1), running="ab")
    assert queues.not_by_arrival(history, ran({"b": 1})) == (
        "a has started but gets no tokens, while b behind it does"
    )
    off = {"enable_chunked_prefill": False, "max_num_batched_tokens": 3}
    history = book(request("a", 6, 2), request("b", 6, 6, 1), running="ab", **off)
    # Its four tokens may not be cut to the three that are left.
    assert queues.not_by_arrival(history, ran({"b": 1})) is None


@pytest.mark.parametrize("pool", [None, 8])
def test_no_newcomer_is_passed_over(pool):
    item = {"max_num_seqs": 1, "num_blocks": pool}
    history = book(request("a"), request("b"), **item)
    assert queues.not_by_arrival(history, ran({"b": 6}, "b", "a")) == (
        "a could start but gets no tokens, while b behind it does"
    )
    assert queues.not_by_arrival(history, ran({"a": 6}, "a", "b")) is None
    # The pool has no room for its 13 tokens.
    history = book(request("a"), request("b", max_tokens=1), **item | {"num_blocks": 3})
    assert queues.not_by_arrival(history, ran({"b": 6}, "b", "a", free_blocks=1)) is None


def test_prioritised_prefills_come_first_and_decodes_behind_them():
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab", **FIRST)
    assert queues.prefill_not_first(history, ran({"b": 4, "a": 1})) is None
    assert queues.prefill_not_first(history, ran({"a": 1, "b": 4})) is not None
    assert queues.prefill_not_first(history, ran({"a": 1})) is not None
    assert queues.not_by_arrival(history, ran({"b": 4, "a": 1})) is None
    assert queues.prefill_overtakes(history, ran({"b": 4, "a": 1}))


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_chunk_keeps_no_decode_out(revision):
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab", revision=revision)
    assert queues.decode_left_out(history, ran({"b": 4})) == (
        "a decodes, but is left out of a batch with a prompt chunk, although budget is left"
    )
    assert queues.decode_left_out(history, ran({"a": 1, "b": 4})) is None
    # Without a chunk it is another rule's.
    assert queues.decode_left_out(history, ran({})) is None
    history = book(request("a", 6, 6, 1), request("b", 12, 2), running="ab", revision=revision)
    assert queues.decode_left_out(history, ran({"b": 10})) is None


def test_nobody_waits_for_a_slot_where_there_is_no_cap():
    history = book(request("a", 1), request("b", 1), max_num_seqs=0)
    assert queues.waits_for_a_slot(history, ran({"a": 1}, "a", "b")) is not None
    assert queues.waits_for_a_slot(history, ran({"a": 1, "b": 1}, "ab")) is None
    history = book(request("a", 1), request("b", 1), max_num_seqs=1)
    assert queues.waits_for_a_slot(history, ran({"a": 1}, "a", "b")) is None
    assert queues.no_cap(book(max_num_seqs=0), ran({}, "abc"))


def test_who_must_not_be_cut_does_not_end_the_batch():
    off = {"enable_chunked_prefill": False, "num_blocks": None}
    history = book(request("a", 8), request("b", 6), request("c", 2), **off)
    reported = queues.kept_out(history, ran({"a": 8}, "a", "bc", free_blocks=None))
    assert reported == "c gets no tokens, although budget and blocks are left: b gets nothing"
    assert queues.kept_out(history, ran({"a": 8, "c": 2}, "ac", "b", free_blocks=None)) is None
    assert queues.passed_over(history, ran({"a": 8, "c": 2}))
    assert not queues.passed_over(history, ran({"a": 8}))


@pytest.mark.parametrize(
    ("step", "breaks"),
    [
        (ran({"a": 1}, "a", "b"), True),
        # Seven tokens to its last one are two blocks; a may still take one.
        (ran({"a": 1}, "a", "b", blocks={"a": [1, 2]}, free_blocks=4), False),
        (ran({"a": 1}, "a", "b", blocks={"a": [1, 2]}, free_blocks=6), True),
        # Blocks of who has just left may not have been free before.
        (ran({"a": 1}, "", "b", finished={"a": "length"}), False),
        (ran({"a": 1}, "a", "b", preempted=("c",)), False),
    ],
)
def test_nobody_waits_with_room_until_its_last_token(step, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    assert (queues.needless_wait(history, step) is not None) is breaks


@pytest.mark.parametrize(("free", "breaks"), [(2, True), (1, False)])
def test_at_head_nobody_waits_with_room_for_what_it_knows(free, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", revision="head")
    step = ran({"a": 1}, "a", "b", free_blocks=free)
    assert (queues.needless_wait(history, step) is not None) is breaks


@pytest.mark.parametrize(("says", "free", "breaks"), [("a", 1, True), ("b", 1, False)])
def test_what_running_requests_share_costs_no_block(says, free, breaks):
    first = request("b", content=((says, 6),))
    history = book(
        request("a", 6, 6, 1), first, running="a", revision="head", enable_prefix_caching=True
    )
    step = ran({"a": 1}, "a", "b", free_blocks=free)
    assert (queues.needless_wait(history, step) is not None) is breaks


def test_at_head_every_slot_that_is_taken_counts():
    history = book(
        request("a", 6, 6, 1), request("b"), running="a", revision="head", max_num_seqs=1
    )
    assert queues.needless_wait(history, ran({"a": 1}, "a", "b")) is None


@pytest.mark.parametrize(("slots", "breaks"), [(3, False), (2, True), (0, False), (1, True)])
def test_a_batch_has_no_more_requests_than_slots(slots, breaks):
    history = book(*(request(name) for name in "abc"), max_num_seqs=slots)
    reported = budget.batch_too_large(history, ran(dict.fromkeys("abc", 1)))
    assert (reported is not None) is breaks


def test_the_cap_is_at_stake_when_somebody_finds_the_batch_full():
    history = book(*(request(name) for name in "abc"), max_num_seqs=2)
    assert budget.batch_is_full(history, ran({"a": 1, "b": 1}))
    assert not budget.batch_is_full(history, ran({"a": 1}))
    assert not budget.batch_is_full(book(request("a"), max_num_seqs=0), ran({"a": 1}))


@pytest.mark.parametrize(("tokens", "breaks"), [(1, False), (2, True)])
def test_a_decode_is_one_token(tokens, breaks):
    history = book(request("a", 6, 6, 1), running="a")
    assert (budget.decode_takes_more(history, ran({"a": tokens})) is not None) is breaks


@pytest.mark.parametrize(
    ("changes", "tokens", "breaks"),
    [
        ({}, 6, False),
        ({}, 5, True),
        ({"long_prefill_token_threshold": 4}, 4, False),
        ({"long_prefill_token_threshold": 4}, 6, True),
        ({"max_num_batched_tokens": 3}, 3, False),
        ({"max_num_batched_tokens": 3}, 2, True),
        # With chunking off the threshold may cut.
        ({"long_prefill_token_threshold": 4, "enable_chunked_prefill": False}, 4, False),
    ],
)
@pytest.mark.parametrize("revision", ["documented", "head"])
def test_who_starts_computes_the_least_of_need_threshold_and_budget(
    revision, changes, tokens, breaks
):
    history = book(request("a"), revision=revision, **changes)
    assert (budget.start_wrong(history, ran({"a": tokens}, "a")) is not None) is breaks


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_request_that_starts_computes_a_token(revision):
    history = book(request("a", 10), request("b"), revision=revision)
    reported = budget.start_wrong(history, ran({"a": 10, "b": 0}, "ab"))
    assert reported is not None
    assert reported.startswith("b computes 0 tokens")


@pytest.mark.parametrize(("revision", "breaks"), [("documented", False), ("head", True)])
def test_with_chunking_off_the_page_leaves_open_whether_the_budget_cuts_a_start(revision, breaks):
    off = {"max_num_batched_tokens": 3, "enable_chunked_prefill": False}
    history = book(request("a"), revision=revision, **off)
    assert (budget.start_wrong(history, ran({"a": 3}, "a")) is not None) is breaks


def test_what_is_cached_is_not_computed_again():
    history = book(request("a"))
    assert budget.start_wrong(history, ran({"a": 2}, "a", prefix_hit={"a": 4})) is None
    assert budget.start_wrong(history, ran({"a": 6}, "a", prefix_hit={"a": 4})) == (
        "a computes 6 tokens, but should compute 2: it needs 2, may compute 10, and 10 tokens of "
        "the budget are left"
    )
    assert budget.start_is_cut_or_cached(history, ran({"a": 2}, "a", prefix_hit={"a": 4}))


@pytest.mark.parametrize(
    ("ahead", "tokens", "breaks"), [(7, 3, False), (5, 4, False), (5, 3, True)]
)
def test_a_prompt_goes_on_with_all_that_is_left_of_it_and_of_the_budget(ahead, tokens, breaks):
    history = book(request("a", ahead), request("b", 8, 4), running="ab")
    assert (budget.rest_wrong(history, ran({"a": ahead, "b": tokens})) is not None) is breaks


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_with_chunking_off_the_budget_may_cut_the_rest_of_a_prompt(revision):
    off = {"enable_chunked_prefill": False, "long_prefill_token_threshold": 4}
    history = book(
        request("a", 7, 7, 1), request("b", 16, 4), running="ab", revision=revision, **off
    )
    history.config["max_num_batched_tokens"] = 4
    assert budget.rest_wrong(history, ran({"a": 1, "b": 3})) is None


@pytest.mark.slow
def test_a_scheduler_that_cuts_prompts_to_the_budget_with_chunking_off_keeps_the_page():
    refuses = "    if not config.enable_chunked_prefill and wanted > budget:\n        return 0\n"
    cuts = Fault(
        *("llmservingsim", "cuts prompts", (Edit("llmservingsim/documented.py", refuses, ""),)),
        revision="documented",
        target="Release",
        intact_model=True,
    )
    with planted(cuts) as target:
        arguments = (target, "llmservingsim", "documented", load("llmservingsim"), "small")
        search = Search(SearchOptions(*arguments))
        assert not run_search(search, 80, 0, 0), search.failure


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_blocks_until_the_last_token_are_free_when_a_request_starts(free, breaks):
    # 6 + 8 - 1 tokens are four blocks, two of which it holds.
    step = ran({"a": 6}, "a", blocks={"a": [1, 2]}, free_blocks=free)
    assert (memory.not_promised(book(request("a")), step) is not None) is breaks


def test_what_others_were_promised_is_not_free():
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    step = ran({"a": 1, "b": 6}, "ab", blocks={"a": [1, 2], "b": [3, 4]}, free_blocks=3)
    assert memory.not_promised(history, step) == (
        "b starts; running requests may still take 4 blocks, but 3 are free"
    )
    # No request is accused who does not start.
    step = ran({"a": 1}, "a", blocks={"a": [1, 2]}, free_blocks=0)
    assert memory.not_promised(book(request("a", 6, 6, 1), running="a"), step) is None


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_at_head_the_rest_of_a_prompt_must_fit_when_it_begins(free, breaks):
    history = book(request("a", 18), revision="head")
    reported = memory.rest_does_not_fit(history, ran({"a": 10}, "a", free_blocks=free))
    assert (reported is not None) is breaks


def test_who_was_aborted_inside_the_step_is_not_accused():
    history = book(request("a", 18), revision="head")
    history.aborts_inside = {"a"}
    step = ran({"a": 2}, "", free_blocks=1, finished={"a": "aborted"})
    assert memory.rest_does_not_fit(history, step) is None
    assert memory.rest_does_not_fit(book(request("a")), ran({}, free_blocks=None)) is None


OFF = {"enable_prefix_caching": False}


def test_without_a_cache_a_request_is_computed_from_its_first_token():
    history = book(request("a", 8, 8, 1), request("b", content=(("a", 6),)), running="a", **OFF)
    assert memory.starts_late(history, ran({"b": 6}, "ab", computed={"b": 6})) is None
    assert memory.starts_late(history, ran({"b": 2}, "ab", computed={"b": 6})) == (
        "b starts with 2 tokens and has 6 computed, although nothing is cached"
    )
    assert memory.starts_like_another(history, ran({"b": 6}, "ab"))
    assert memory.starts_late(book(request("b")), ran({"b": 2}, "b", computed={"b": 6})) is None


def test_what_was_said_before_is_at_stake_only_without_a_cache():
    history = book(request("a", 8, 8, 1), request("b", content=(("a", 6),)), running="a")
    assert not memory.starts_like_another(history, ran({"b": 2}, "ab"))
    history = book(request("a", 8, 8, 1), request("b"), running="a", **OFF)
    assert not memory.starts_like_another(history, ran({"b": 6}, "ab"))


def three(**changes):
    """Two that decode, and one that waits."""
    return book(
        *(request(name, 8, 8, 1) for name in "ab"),
        request("c"),
        **{"running": "ab", "revision": "head", "free": 0, **changes},
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ran({"a": 1}, "a", "bc", preempted=("b",)), None),
        (
            ran({"b": 1}, "b", "ac", preempted=("a",)),
            "a preempted instead of b; a, b ran, in this order",
        ),
        (
            ran({"a": 1, "c": 6}, "ac", "b", preempted=("b",)),
            "c admitted in the step that preempted b",
        ),
        (
            ran({"a": 1}, "a", "bc", preempted=("b",), blocks={"b": [4]}),
            "b was preempted and holds 1 blocks",
        ),
        (ran({"b": 1, "a": 1}, "ab", "c"), "scheduled in the order b, a; a, b were running"),
        (ran({"c": 6, "a": 1, "b": 1}, "abc"), "scheduled in the order c, a, b; a, b were running"),
        (ran({"a": 1, "b": 1, "c": 6}, "abc"), None),
    ],
)
def test_running_first_then_the_tail_gives_way_alone_and_with_everything(step, message):
    assert queues.not_as_vllm(three(), step) == message


def test_nobody_gives_way_while_blocks_are_enough():
    reported = queues.not_as_vllm(
        with_tables(three(), 2), ran({"a": 1}, "a", "bc", preempted=("b",))
    )
    assert reported == (
        "b preempted, although running requests needed at most 2 blocks, and 2 were free "
        "before b gave back its blocks"
    )


def test_who_waits_is_listed_and_admitted_by_arrival():
    history = three()
    assert (
        queues.waiting_not_by_arrival(history, ran({"a": 1}, "a", "bc", preempted=("b",))) is None
    )
    assert queues.waiting_not_by_arrival(history, ran({"a": 1}, "a", "cb", preempted=("b",))) == (
        "c, b wait in this order, but came in the order b, c"
    )
    history = book(*(request(name) for name in "abc"), revision="head")
    assert queues.waiting_not_by_arrival(history, ran({"b": 6}, "b", "ac")) == (
        "b is admitted, but a came before it and waits"
    )
    assert queues.waiting_not_by_arrival(history, ran({"b": 6, "a": 4}, "ba", "c")) == (
        "b, a are admitted in this order, which is not that of their arrival"
    )
    assert queues.two_wait_or_one_joins(history, ran({"a": 6}, "a", "bc"))
    assert not queues.two_wait_or_one_joins(history, ran({"a": 6}, "a"))


@pytest.mark.parametrize(("reported", "right"), [(8, True), (6, False), (2, False)])
def test_a_hit_counts_with_the_chunk_that_ends_the_prompt(reported, right):
    waits = book(request("a", 8))
    whole = ran({"a": 2}, "a", emitted={"a": 1}, prompt_throughput=reported)
    assert (budget.prompt_miscounted(waits, whole) is None) == right
    assert budget.hit_counted(waits, whole)


def test_a_chunk_that_does_not_end_the_prompt_counts_by_itself():
    waits = book(request("a", 8))
    first = ran({"a": 5}, "a", emitted={}, prompt_throughput=6)
    assert budget.prompt_miscounted(waits, first) == ("6 prompt tokens reported, expected 5 (a 5)")
    assert not budget.hit_counted(waits, first)
    goes_on = book(request("a", 8, 5), running="a")
    last = ran({"a": 3}, "a", emitted={"a": 1}, prompt_throughput=3)
    assert budget.prompt_miscounted(goes_on, last) is None


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (6, 2, None),
        (2, 6, None),
        (2, 2, "2 prompt tokens reported, expected 6 (a 6)"),
        (6, 6, "6 prompt tokens reported, expected 2 (a 2)"),
    ],
)
def test_a_hit_counts_once_with_the_first_chunk_or_the_last(first, last, message):
    history = book(request("a", 8))
    starts = ran({"a": 2}, "a", prompt_throughput=first, prefix_hit={"a": 4})
    assert budget.prompt_miscounted(history, starts) is None
    history.observe(starts)
    ends = ran({"a": 2}, "a", emitted={"a": 1}, prompt_throughput=last, prefix_hit={"a": 4})
    assert budget.prompt_miscounted(history, ends) == message


def test_what_a_request_generates_is_no_prompt():
    decodes = book(request("a", 8, 8, 1), running="a")
    step = ran({"a": 1}, "a", emitted={"a": 1}, prompt_throughput=1, decode_throughput=1)
    assert budget.prompt_miscounted(decodes, step) == (
        "1 prompt tokens reported, expected 0 (none)"
    )
    assert budget.generated_miscounted(decodes, step) is None


def test_the_first_token_counts_as_generated():
    both = book(request("a", 8, 8, 1), request("b", 4), running="a")
    step = ran({"a": 1, "b": 4}, "ab", emitted={"a": 1, "b": 1}, decode_throughput=1)
    assert budget.generated_miscounted(both, step) == (
        "1 generated tokens reported, 2 were emitted"
    )
    assert budget.first_beside_another(both, step)
    assert not budget.first_beside_another(both, ran({"a": 1}, "a", emitted={"a": 1}))


def test_a_request_that_no_step_schedules_does_not_keep_the_simulation_from_its_end():
    stuck = book(request("a", 40), instances=1, num_blocks=2)
    assert main_loop.wrong_end(stuck, ran({}, waiting="a", free_blocks=2, over=True)) is None
    assert main_loop.wrong_end(stuck, ran({}, waiting="a", free_blocks=2, over=False)) == (
        "nothing is scheduled and no request is still to come, but the simulation does not end"
    )
    assert main_loop.wrong_end(stuck, ran({"a": 6}, running="a", over=False)) is None
    assert main_loop.wrong_end(stuck, ran({"a": 6}, running="a", over=True)) is not None
    has_room = book(request("a"), instances=1)
    assert main_loop.wrong_end(has_room, ran({}, waiting="a", over=True)) is not None
    tool = book(request("a", blocked=3), instances=1)
    assert main_loop.wrong_end(tool, ran({}, over=False)) is None
    assert main_loop.wrong_end(tool, ran({}, over=True)) is not None
    head = book(request("a"), instances=1, revision="head")
    assert main_loop.wrong_end(head, ran({}, waiting="a", over=False)) is None
    assert main_loop.wrong_end(head, ran({}, waiting="a", over=True)) is not None
