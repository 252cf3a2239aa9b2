"""Queues and their order, by example."""

import pytest
from msgspec.structs import replace

from schedproof.properties.vllm.predicates import admission, blocks, budget, preemption, queues

from ...rules.tables import with_tables
from .build import book, ran, request


@pytest.mark.parametrize(
    ("running", "waiting", "breaks"), [("a", "b", False), ("ab", "b", True), ("a", "", True)]
)
def test_an_unfinished_request_is_in_exactly_one_queue(running, waiting, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    step = ran({"a": 1}, running, waiting)
    assert (queues.not_in_one_queue(history, step) is not None) is breaks


def test_who_finishes_is_in_no_queue():
    history = book(request("a", 6, 6, 1), running="a")
    assert queues.not_in_one_queue(history, ran({"a": 1}, finished={"a": "eos"})) is None


def test_no_more_run_than_there_are_slots_even_if_one_ends():
    accounts = [request(name, 2, 2, 1) for name in "abc"] + [request("d", 2)]
    history = book(*accounts, running="abc")
    full = ran({"a": 1, "b": 1, "c": 1}, "abc", "d")
    assert queues.too_many_run(history, full) is None
    assert queues.every_slot_taken(history, full)
    four = ran({"a": 1, "b": 1, "c": 1, "d": 2}, "bcd", finished={"a": "eos"})
    assert queues.too_many_run(history, four) == "4 requests run, but max_num_seqs is 3"


def test_running_requests_are_scheduled_before_those_that_join():
    history = book(request("a", 2, 2, 1), request("b", 2), running="a")
    assert queues.out_of_order(history, ran({"a": 1, "b": 2}, "ab")) is None
    assert queues.out_of_order(history, ran({"b": 2, "a": 1}, "ab")) is not None


def test_a_running_request_gets_nothing_only_if_none_behind_it_is_scheduled():
    history = book(request("a", 6, 6, 1), request("b", 30, 4), running="ab")
    assert queues.out_of_order(history, ran({"a": 10}, "ab")) is None
    reported = queues.out_of_order(history, ran({"b": 10}, "ab"))
    assert reported == "b is scheduled, but a, which runs before it, is not"


@pytest.mark.parametrize(("policy", "first"), [("fcfs", "a"), ("priority", "b")])
def test_nobody_is_admitted_past_who_goes_first(policy, first):
    accounts = (request("a", priority=1), request("b", priority=0))
    history = book(*accounts, policy=policy, revision="0.25")
    other = "ab".replace(first, "")
    assert queues.overtaken(history, ran({first: 6}, first, other)) is None
    reported = queues.overtaken(history, ran({other: 6}, other, first))
    assert reported == f"{other} admitted, but {first} in front of it still waits"


def test_a_step_that_preempts_admits_nobody_and_not_the_victim():
    history = book(request("a", 6, 6, 1), request("b", 6, 6, 1), request("c"), running="ab")
    assert (
        queues.admitted_after_preemption(history, ran({"a": 1}, "a", "bc", preempted=("b",)))
        is None
    )
    for name in "bc":
        step = ran({"a": 1, name: 6}, f"a{name}", preempted=("b",))
        reported = queues.admitted_after_preemption(history, step)
        assert reported == f"{name} admitted in the step that preempted b"


@pytest.mark.parametrize(
    ("changes", "more", "breaks"),
    [
        ({}, {}, True),
        ({"max_num_seqs": 1}, {}, False),
        ({"max_num_batched_tokens": 3, "max_num_seqs": 2}, {}, True),
        ({}, {"free_blocks": 1}, False),
        ({}, {"free_blocks": 2}, True),
        # The reserve of one of eight blocks is refused to a request that joins.
        ({"watermark": 0.125}, {"free_blocks": 2}, False),
        ({"watermark": 0.125, "revision": "0.25"}, {"free_blocks": 3}, True),
        # No document says how it is rounded: with the null block it is of nine.
        ({"watermark": 0.125}, {"free_blocks": 3}, False),
        ({"watermark": 0.125}, {"free_blocks": 4}, True),
        ({}, {"preempted": ("a",)}, False),
        # Blocks of one that ends were not free when it was decided.
        ({}, {"finished": {"a": "eos"}}, False),
    ],
)
def test_the_first_in_line_does_not_wait_in_vain(changes, more, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", **changes)
    reported = queues.needless_wait(history, ran({"a": 1}, "a", "b", **more))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(
    ("says", "free", "breaks"), [("a", 1, True), ("a", 0, False), ("b", 1, False), ("b", 2, True)]
)
def test_what_running_requests_share_with_the_first_in_line_costs_no_block(says, free, breaks):
    first = request("b", content=((says, 6),))
    history = book(request("a", 6, 6, 1), first, running="a", enable_prefix_caching=True)
    reported = queues.needless_wait(history, ran({"a": 1}, "a", "b", free_blocks=free))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(
    ("more", "breaks"),
    [
        ({"a": {}, "b": {}}, True),
        ({"a": {}, "b": {"priority": 1}}, True),
        ({"a": {"preemptions": 1}, "b": {}}, True),
        ({"a": {"priority": 1}, "b": {}}, False),  # a queue by priority begins with b
        ({"a": {"priority": 1, "preemptions": 1}, "b": {}}, False),
        ({"a": {}, "b": {"preemptions": 1}}, False),  # a preempted request may wait in front
    ],
)
def test_by_priority_whoever_is_surely_in_front_is_not_passed(more, breaks):
    accounts = [request(name, **account) for name, account in more.items()]
    # No document says whether c, which is more important, is in front of the two.
    accounts.append(request("c", priority=-1))
    history = book(*accounts, running="", policy="priority")
    passes = queues.overtaken(history, ran({"b": 6}, "b", "ac"))
    assert passes == ("b admitted, but a in front of it still waits" if breaks else None)
    history.live["b"].prompt = 16  # only a has room
    idle = queues.needless_wait(history, ran({"c": 6}, "c", "ab", free_blocks=3))
    assert (idle is not None) is breaks


@pytest.mark.parametrize(("free", "breaks"), [(1, False), (2, False), (3, True)])
def test_by_priority_some_request_is_admitted_if_whichever_is_first_has_room(free, breaks):
    accounts = [request("a", priority=1), request("b", 10, priority=0), request("c")]
    history = book(*accounts, running="c", policy="priority")
    reported = queues.needless_wait(history, ran({"c": 1}, "c", "ab", free_blocks=free))
    assert (reported is not None) is breaks


def test_everyone_who_runs_has_a_turn_while_the_budget_lasts():
    accounts = [request(name, 6, 6, 1) for name in "abc"]
    history = book(*accounts, running="abc")
    assert queues.passed_by(history, ran({"a": 1, "b": 1, "c": 1}, "abc")) is None
    reported = queues.passed_by(history, ran({"a": 1, "c": 1}, "abc"))
    assert reported == "b not scheduled, although running and budget is left"
    assert queues.passed_by(book(*accounts, running="abc"), ran({"a": 10}, "abc")) is None


def test_by_priority_one_that_is_its_own_victim_may_end_the_round():
    accounts = [request(name, 6, 6, 1) for name in "abc"]
    history = book(*accounts, running="abc", policy="priority")
    assert queues.passed_by(history, ran({"a": 1}, "ac", "b", preempted=("b",))) is None
    # Here a request behind the victim went on, so the round did not end with it.
    assert queues.passed_by(history, ran({"b": 1}, "bc", "a", preempted=("a",))) is not None


def test_the_tokens_of_a_step_are_within_the_budget():
    history = book(request("a", 20), request("b", 20))
    assert budget.budget_exceeded(history, ran({"a": 6, "b": 4})) is None
    reported = budget.budget_exceeded(history, ran({"a": 6, "b": 5}))
    assert reported == "11 tokens scheduled > max_num_batched_tokens 10"
    assert budget.budget_binds(history, ran({}))
    assert not budget.budget_binds(book(request("a", 6)), ran({}))


@pytest.mark.parametrize(("tokens", "breaks"), [(0, True), (1, False), (6, False), (7, True)])
def test_nobody_computes_nothing_or_what_is_not_known(tokens, breaks):
    reported = budget.beyond_known(book(request("a", 6)), ran({"a": tokens}, prefix_hit={"a": 0}))
    assert (reported is not None) is breaks


def test_what_was_cached_is_not_computed_again():
    history = book(request("a", 6))
    assert budget.beyond_known(history, ran({"a": 2}, prefix_hit={"a": 4})) is None
    reported = budget.beyond_known(history, ran({"a": 3}, prefix_hit={"a": 4}))
    assert reported == "a computes 3 tokens, but 2 are known and not computed"


def test_the_threshold_caps_everyone_and_zero_nobody():
    step = ran({"a": 4, "b": 5})
    capped = book(request("a", 9), request("b", 9), long_prefill_token_threshold=4)
    assert "b computes 5 tokens" in (budget.threshold_exceeded(capped, step) or "")
    assert budget.threshold_exceeded(book(request("a", 9)), step) is None
    assert budget.threshold_binds(capped, step)


@pytest.mark.parametrize(
    ("tokens", "breaks"),
    [({"a": 1, "b": 9}, False), ({"a": 1, "b": 8}, True), ({"a": 2, "b": 8}, True)],
)
def test_running_requests_take_the_budget_in_their_order(tokens, breaks):
    history = book(request("a", 6, 6, 1), request("b", 20, 4), running="ab")
    assert (budget.running_clamp(history, ran(tokens)) is not None) is breaks
    assert budget.waiting_clamp(history, ran(tokens)) is None


def test_newcomers_take_what_is_left():
    history = book(request("a", 6, 6, 1), request("b", 20), running="a")
    assert budget.waiting_clamp(history, ran({"a": 1, "b": 9})) is None
    reported = budget.waiting_clamp(history, ran({"a": 1, "b": 5}))
    assert reported is not None
    assert "should compute 9: it needs 20, may compute 10, and 9 tokens of the budget" in reported


def test_the_message_says_how_much_ends_at_a_block_boundary():
    groups = [{"kind": "full"}, {"kind": "mamba"}]
    history = book(request("a", 6, 6, 1), request("b", 20), running="a", kv_groups=groups)
    assert budget.waiting_clamp(history, ran({"a": 1, "b": 9})) == (
        "b computes 9 tokens, but should compute 8: it needs 20, may compute 10, and 9 tokens of "
        "the budget are left; the chunk must end at a block boundary"
    )


def test_nobody_is_accused_where_a_victim_gave_its_share_back():
    accounts = (request("a", 20, 4, priority=9), request("b", 20, 4))
    history = book(*accounts, running="ab", policy="priority")
    assert budget.running_clamp(history, ran({"b": 4}, preempted=("a",))) is None
    assert budget.running_clamp(history, ran({"b": 4})) is not None


@pytest.mark.parametrize(("order", "breaks"), [("bc", True), ("cb", False)])
def test_a_share_that_came_back_before_a_request_had_its_turn_is_left_over(order, breaks):
    """Two blocks are free, which a takes. If b comes next, it preempts a, and otherwise c does."""
    accounts = [request("a", 40, 16, priority=9), request("b", 4, 4, 1), request("c", 40, 12)]
    more = {"policy": "priority", "long_prefill_token_threshold": 6, "num_blocks": 10}
    history = book(*accounts, running="abc", **more)
    history.last = replace(history.last, blocks={"a": (1, 2, 3, 4), "b": (5,), "c": (6, 7, 8)})
    tokens = {"b": 1, "c": 4}
    blocks = {"b": (5, 4), "c": (6, 7, 8, 3)}
    step = ran({name: tokens[name] for name in order}, blocks=blocks, preempted=("a",))
    assert (budget.running_clamp(history, step) is not None) is breaks


def test_without_chunking_the_budget_does_not_cut_a_prompt():
    history = book(request("a", 9), request("b", 9), enable_chunked_prefill=False)
    assert budget.chunked_although_off(history, ran({"a": 9})) is None
    assert budget.prompt_too_long_for_now(history, ran({"a": 9}))
    reported = budget.chunked_although_off(history, ran({"a": 9, "b": 1}))
    assert reported == "b starts with 1 of 9 tokens, although prompts are not chunked"


def test_without_chunking_a_prompt_beyond_the_whole_budget_does_not_start():
    history = book(request("a", 14), enable_chunked_prefill=False)
    reported = budget.chunked_although_off(history, ran({"a": 10}, prefix_hit={"a": 0}))
    assert reported == "a starts with 10 of 14 tokens, although prompts are not chunked"


def test_without_chunking_the_threshold_still_cuts():
    history = book(request("a", 9), enable_chunked_prefill=False, long_prefill_token_threshold=4)
    assert budget.chunked_although_off(history, ran({"a": 4})) is None


@pytest.mark.parametrize(
    ("tokens", "emitted", "breaks"),
    [(6, 1, False), (6, 0, True), (6, 2, True), (5, 0, False), (5, 1, True)],
)
def test_a_token_comes_out_of_whoever_has_caught_up(tokens, emitted, breaks):
    step = ran({"a": tokens}, emitted={"a": emitted} if emitted else {})
    assert (budget.emission_wrong(book(request("a", 6)), step) is not None) is breaks


def test_a_preempted_request_emits_when_its_answer_is_computed_again_too():
    history = book(request("a", 6, 0, 3, regenerated=3, preemptions=1))
    assert budget.emission_wrong(history, ran({"a": 6})) is None
    assert budget.emission_wrong(history, ran({"a": 6}, emitted={"a": 1})) is not None
    assert budget.emission_wrong(history, ran({"a": 9}, emitted={"a": 1})) is None


@pytest.mark.parametrize(
    ("gone", "breaks"), [("c", False), ("bc", False), ("b", True), ("ac", True)]
)
def test_first_come_first_served_the_tail_is_preempted(gone, breaks):
    history = book(*(request(name, 6, 6, 1) for name in "abc"), running="abc")
    reported = preemption.victim_not_the_tail(history, ran({}, preempted=tuple(gone)))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(("at", "breaks"), [(0, True), (2, False)])
def test_of_the_requests_admitted_in_a_step_the_last_is_preempted(at, breaks):
    accounts = [request(name, 6, 6, 1, began=3, began_at=p) for name, p in (("a", 1), ("b", at))]
    history = book(*accounts, running="ab")
    reported = preemption.victim_not_the_tail(history, ran({}, preempted=("b",)))
    message = "b, admitted in step 3, is preempted; a, admitted after it in step 3, stays"
    assert reported == (message if breaks else None)


@pytest.mark.parametrize(
    ("gone", "breaks"), [("b", False), ("bc", False), ("c", True), ("a", True)]
)
def test_by_priority_the_least_important_is_preempted_the_last_of_equals(gone, breaks):
    accounts = [request(name, 6, 6, 1, priority=p) for name, p in (("a", 0), ("c", 2), ("b", 2))]
    history = book(*accounts, running="acb", policy="priority")
    reported = preemption.victim_not_least_important(history, ran({}, preempted=tuple(gone)))
    assert (reported is not None) is breaks
    assert preemption.victim_not_the_tail(history, ran({}, preempted=tuple(gone))) is None


@pytest.mark.parametrize(("free", "breaks"), [(0, False), (1, False), (2, True)])
def test_nobody_is_preempted_while_there_are_blocks_for_all(free, breaks):
    # Both are at the end of a block: each needs one more.
    accounts = [request(name, 4, 4, 1) for name in "ab"]
    history = with_tables(book(*accounts, running="ab"), free)
    reported = preemption.needless_preemption(history, ran({"a": 1}, "a", "b", preempted=("b",)))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(("of_b", "breaks"), [(3, True), (4, False)])
def test_no_more_are_preempted_than_have_to_be(of_b, breaks):
    # a needs a block, and c gives one back: b has to go only if it needs a block, too.
    accounts = [request("a", 4, 4, 1), request("b", of_b, of_b, 1), request("c", 3, 3, 1)]
    history = with_tables(book(*accounts, running="abc"), 0)
    step = ran({"a": 1}, "a", "bc", preempted=("c", "b"))
    assert (preemption.needless_preemption(history, step) is not None) is breaks


@pytest.mark.parametrize(
    ("more", "breaks"),
    [
        ({}, False),
        ({"computed": {"a": 7, "b": 4}}, True),
        ({"blocks": {"b": (3,)}}, True),
        ({"computed": {"b": 0}, "blocks": {"b": ()}}, False),
    ],
)
def test_a_victim_holds_nothing_and_has_nothing_computed(more, breaks):
    history = book(request("a", 6, 6, 1), request("b", 6, 6, 1), running="ab")
    step = ran({"a": 1}, "a", "b", preempted=("b",), **more)
    assert (preemption.victim_keeps_something(history, step) is not None) is breaks


@pytest.mark.parametrize(("waiting", "breaks"), [("bcd", False), ("cbd", True), ("bdc", False)])
def test_who_was_preempted_waits_in_front_of_those_who_never_started(waiting, breaks):
    accounts = [request("a", 6, 6, 1), request("b", 6, 6, 1), request("c"), request("d")]
    history = book(*accounts, running="ab")
    step = ran({"a": 1}, "a", waiting, preempted=("b",))
    assert (preemption.newcomer_before_preempted(history, step) is not None) is breaks


def test_who_runs_goes_on_or_is_counted_as_preempted():
    history = book(request("a", 6, 6, 1), request("b", 12, 4), running="ab")
    silent = ran({"a": 1}, "a", "b")
    assert preemption.stops_running(history, silent) is not None
    assert preemption.preemption_not_counted(history, silent) is not None
    counted = ran({"a": 1}, "a", "b", preempted=("b",))
    assert preemption.stops_running(history, counted) is None
    assert preemption.preemption_not_counted(history, counted) is None
    stranger = ran({"a": 1, "b": 3}, "ab", preempted=("c",))
    assert preemption.preemption_not_counted(history, stranger) == (
        "c counted as preempted, but was not running"
    )


@pytest.mark.parametrize(("running", "waiting", "breaks"), [("a", "", False), ("", "a", True)])
def test_who_joins_with_a_part_of_its_prompt_is_running_after_the_step(running, waiting, breaks):
    history = book(request("a", 20))
    step = ran({"a": 10}, running, waiting, prefix_hit={"a": 0})
    assert (preemption.stops_running(history, step) is not None) is breaks


@pytest.mark.parametrize(("computed", "breaks"), [(10, False), (6, True), (11, True)])
def test_the_counter_is_what_was_cached_and_what_was_scheduled(computed, breaks):
    step = ran({"a": 6}, "a", computed={"a": computed}, prefix_hit={"a": 4})
    reported = preemption.counter_wrong(book(request("a", 12)), step)
    assert (reported is not None) is breaks


COMMON = (("s", 8),)


@pytest.mark.parametrize("caching", [True, False])
def test_without_prefix_caching_no_block_is_shared(caching):
    accounts = [request(name, 8, 8, 1, content=COMMON) for name in "ab"]
    history = book(*accounts, running="ab", enable_prefix_caching=caching)
    tables = {"a": (1, 2, 3), "b": (1, 2, 4)}
    step = ran({"a": 1, "b": 1}, "ab", computed={"a": 9, "b": 9}, blocks=tables)
    reported = blocks.shared_wrongly(history, step)
    without = "a and b share block 1, although prefix caching is off"
    assert reported == (None if caching else without)


def test_nobody_holds_the_null_block():
    history = book(request("a"))
    assert blocks.null_block_held(history, ran({"a": 6}, blocks={"a": (1, 2)})) is None
    assert "block 0" in (blocks.null_block_held(history, ran({"a": 6}, blocks={"a": (1, 0)})) or "")


@pytest.mark.parametrize(("held", "breaks"), [((1, 2), False), ((1,), True), ((1, 2, 3), True)])
def test_who_runs_holds_the_blocks_of_what_is_computed(held, breaks):
    step = ran({"a": 6}, "a", computed={"a": 6}, blocks={"a": held})
    assert (blocks.holds_wrong_number(book(request("a")), step) is not None) is breaks


@pytest.mark.parametrize(
    ("own", "held", "breaks"),
    [
        ((("s", 8), ("b", 4)), (1, 2, 4), False),
        ((("s", 4), ("b", 8)), (1, 2, 4), True),
        ((("s", 8), ("b", 4)), (2, 1, 4), True),
        ((("s", 8), ("b", 4)), (1, 2, 3), True),
    ],
)
def test_blocks_are_shared_only_by_what_is_the_same_up_to_their_end(own, held, breaks):
    history = book(request("a", 11, content=(("s", 8), ("a", 3))), request("b", 12, content=own))
    step = ran({}, "ab", computed={"a": 11, "b": 12}, blocks={"a": (1, 2, 3), "b": held})
    assert (blocks.shared_wrongly(history, step) is not None) is breaks


def test_a_block_that_is_still_written_to_is_not_shared():
    history = book(request("a", 8, content=COMMON), request("b", 8, content=COMMON))
    step = ran({}, "ab", computed={"a": 6, "b": 8}, blocks={"a": (1, 2), "b": (1, 2)})
    reported = blocks.shared_wrongly(history, step)
    assert reported is not None
    assert reported.endswith("share block 2, which is still being written")


@pytest.mark.parametrize(("hit", "breaks"), [(0, False), (4, False), (8, True), (3, True)])
def test_a_hit_has_whole_blocks_and_never_the_last_token(hit, breaks):
    step = ran({"a": 8 - hit}, "a", prefix_hit={"a": hit})
    assert (blocks.hit_too_long(book(request("a", 8)), step) is not None) is breaks


@pytest.mark.parametrize(("hit", "breaks"), [(0, True), (4, True), (8, False)])
def test_what_a_running_request_holds_is_found(hit, breaks):
    old = request("a", 10, 10, 1, content=(("s", 8), ("a", 2)))
    new = request("b", 10, content=(("s", 8), ("b", 2)))
    history = book(old, new, running="a")
    step = ran({"a": 1, "b": 10 - hit}, "ab", prefix_hit={"b": hit})
    assert (blocks.hit_missed(history, step) is not None) is breaks
    assert blocks.shares_with_running(history, step)


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_who_joins_others_leaves_the_reserve(free, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", watermark=0.25)
    step = ran({"a": 1, "b": 6}, "ab", free_blocks=free)
    assert (admission.reserve_given_away(history, step) is not None) is breaks


def test_who_is_alone_may_use_the_reserve_and_the_second_may_not():
    history = book(request("a"), request("b"), watermark=0.25)
    assert admission.reserve_given_away(history, ran({"a": 6}, "a", "b", free_blocks=1)) is None
    both = ran({"a": 6, "b": 4}, "ab", free_blocks=1)
    assert (admission.reserve_given_away(history, both) or "").startswith("b admitted")


@pytest.mark.parametrize(
    ("free", "reserve", "breaks"), [(2, True, False), (1, True, True), (1, False, False)]
)
def test_the_rest_of_a_prompt_must_fit_when_it_begins(free, reserve, breaks):
    # Of 18 tokens 10 run now: three blocks, two more are needed.
    history = book(request("a", 18), reserve_full_isl=reserve)
    reported = admission.rest_does_not_fit(history, ran({"a": 10}, "a", free_blocks=free))
    assert (reported is not None) is breaks


def test_who_was_aborted_inside_the_step_is_not_accused():
    history = book(request("a", 18))
    history.aborts_inside = {"a"}
    step = ran({"a": 2}, "", free_blocks=1, finished={"a": "aborted"}, prefix_hit={})
    assert admission.rest_does_not_fit(history, step) is None


def test_what_later_ones_took_was_free_before():
    history = book(request("a", 12), request("b", 2), max_num_batched_tokens=10)
    step = ran({"a": 8, "b": 2}, "ab", free_blocks=0)
    assert admission.rest_does_not_fit(history, step) is None


def test_a_hit_on_a_block_that_a_running_request_took_in_the_same_step_costs_no_block():
    """Block 4 is new in the step, and held by `a` when `b` finds it."""
    newcomer = request("b", 5, content=(("a", 1), ("out:a", 4)))
    runs = request("a", 1, 2, 2)
    history = book(
        runs,
        newcomer,
        running="a",
        num_blocks=5,
        watermark=0.25,
        **{"block_size": 1, "reserve_full_isl": False},
    )
    history.last = replace(history.last, blocks={"a": (3, 5)}, free_blocks=3)
    step = ran({"a": 1, "b": 1}, "ab", free_blocks=1, prefix_hit={"b": 3})
    step = replace(step, blocks={"a": (3, 5, 4), "b": (3, 5, 4, 1)})
    assert admission.reserve_given_away(history, step) is None


def test_where_the_release_says_so_a_request_that_is_alone_has_no_threshold():
    limit = {"long_prefill_token_threshold": 4}
    for revision, reported in (("0.30", True), ("0.31", False), ("0.33", False)):
        alone = book(request("a", 9), revision=revision, **limit)
        step = ran({"a": 9}, prefix_hit={"a": 0})
        assert (budget.threshold_exceeded(alone, step) is not None) is reported
        assert (budget.waiting_clamp(alone, step) is not None) is reported
        both = book(request("a", 9), request("b", 9), revision=revision, **limit)
        assert budget.threshold_exceeded(both, step) is not None


def test_where_the_release_says_so_a_request_that_is_alone_is_computed_as_a_whole():
    limit = {"long_prefill_token_threshold": 4}
    step = ran({"a": 4}, prefix_hit={"a": 0})
    assert budget.waiting_clamp(book(request("a", 9), **limit), step) is None
    assert budget.waiting_clamp(book(request("a", 9), revision="0.33", **limit), step) is not None


def test_where_the_release_says_so_the_round_goes_on_behind_its_own_victim():
    accounts = [request(name, 6, 6, 1) for name in "abc"]
    step = ran({"a": 1}, "ac", "b", preempted=("b",))
    for revision, reported in (("0.31", False), ("0.33", True)):
        history = book(*accounts, running="abc", policy="priority", revision=revision)
        assert (queues.passed_by(history, step) is not None) is reported
