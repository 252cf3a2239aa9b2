"""One step in its parts, and worked situations of the two documents. Block 4, budget 16."""

import pytest

from schedproof.model.pool import Pool
from schedproof.model.vllm import completion, scheduler
from schedproof.model.vllm.state import Coming, State

from .build import config, decoding, ids, pool, stepped, waiting

PRIORITY = config(policy="priority")
CACHING = config(enable_prefix_caching=True)


def decided(limits, state):
    return scheduler.schedule(limits, state)


def steps(limits, state, count):
    """What the next steps show."""
    shown = []
    for _ in range(count):
        state, seen = stepped(limits, state)
        shown.append(seen)
    return shown


def queue(*members, **changes):
    """Nothing but waiting requests, numbered in their order."""
    numbered = tuple(sequence._replace(arrival=place) for place, sequence in enumerate(members))
    return State(waiting=numbered, arrived=len(members))._replace(**changes)


def test_arrivals_are_numbered_and_wait_behind_the_others():
    state = scheduler.arrive(config(), State(), waiting(5, name="a"))
    state = scheduler.arrive(config(), state, waiting(5, name="b", priority=-1))
    assert [(sequence.id, sequence.arrival) for sequence in state.waiting] == [("a", 0), ("b", 1)]
    assert state.arrived == 2


@pytest.mark.parametrize("place", ["waiting", "running"])
def test_an_aborted_request_is_gone_from_its_queue_and_to_be_reported(place):
    members = tuple(waiting(5, name=name) for name in "abc")
    state = State(aborted=("x",))._replace(**{place: members})
    after = scheduler.abort(config(), state, "b")
    assert after == State(aborted=("x", "b"))._replace(**{place: (members[0], members[2])})


def test_an_aborted_request_gives_back_what_no_other_one_holds():
    a = decoding("a", 5, 1, 2, content=(("s", 5),), published=1)
    b = decoding("b", 5, 1, 3, content=(("s", 5),), published=1)
    cached = {(("s", 4),): (1,)}
    state = State(running=(a, b), pool=Pool(9, (), 4, (), cached))
    after = scheduler.abort(CACHING, state, "a")
    assert after.pool == Pool(9, (2,), 4, (), cached)


@pytest.mark.parametrize(
    ("behind", "threshold", "budget", "tokens"),
    [
        (10, 0, 16, 10),
        (10, 0, 10, 10),
        (10, 0, 9, 9),
        (10, 4, 16, 4),
        (10, 10, 16, 10),
        (10, 11, 16, 10),
        (10, 4, 3, 3),
        (1, 4, 16, 1),
    ],
)
def test_a_request_gets_what_it_lacks_up_to_the_threshold_and_the_budget(
    behind, threshold, budget, tokens
):
    limits = config(long_prefill_token_threshold=threshold)
    assert scheduler.clamp(limits, behind, budget) == tokens


def test_a_long_prompt_is_computed_in_slices_of_the_budget():
    shown = steps(config(), queue(waiting(40, 2, "a")), 4)
    assert [seen["scheduled"] for seen in shown] == [{"a": 16}, {"a": 16}, {"a": 8}, {"a": 1}]
    assert [seen["emitted"] for seen in shown] == [{}, {}, {"a": 1}, {"a": 1}]
    assert [seen["prefilling"] for seen in shown] == [["a"], ["a"], [], []]
    assert [seen["kind"] for seen in shown] == ["prefill"] * 3 + ["decode"]
    assert shown[3]["finished"] == {"a": "length"}


def test_slices_share_the_step_with_the_decodes_of_the_others():
    """Two decodes leave 14 tokens of the budget."""
    state = State((waiting(30, name="c"),), (decoding("a", 5, 1, 2), decoding("b", 6, 3, 4)))
    first, second, third = steps(config(), state._replace(pool=pool(None, 4)), 3)
    assert first["scheduled"] == second["scheduled"] == {"a": 1, "b": 1, "c": 14}
    assert (first["kind"], first["emitted"]) == ("mixed", {"a": 1, "b": 1})
    assert third["scheduled"] == {"a": 1, "b": 1, "c": 2}
    assert third["emitted"] == {"a": 1, "b": 1, "c": 1}


def test_the_threshold_leaves_room_for_the_prompts_of_others():
    state = queue(waiting(12, name="a"), waiting(12, name="b"))
    limits = config(long_prefill_token_threshold=5)
    shown = steps(limits, state, 3)
    assert [seen["scheduled"] for seen in shown] == [{"a": 5, "b": 5}] * 2 + [{"a": 2, "b": 2}]
    assert steps(config(), state, 1)[0]["scheduled"] == {"a": 12, "b": 4}


def test_without_chunking_a_prompt_waits_until_the_whole_of_it_fits_the_budget():
    """One decode leaves 15 tokens."""
    whole = config(enable_chunked_prefill=False)
    state = State(running=(decoding("a", 5, 1, 2),), pool=pool(None, 2))
    for prompt, scheduled in ((15, {"a": 1, "b": 15}), (16, {"a": 1})):
        plan = decided(whole, state._replace(waiting=(waiting(prompt, name="b"),)))
        assert plan.scheduled == scheduled
    assert decided(config(), state._replace(waiting=(waiting(16, name="b"),))).scheduled == {
        **{"a": 1, "b": 15}
    }


def test_nobody_passes_a_prompt_that_waits_for_the_budget():
    whole = config(enable_chunked_prefill=False)
    state = queue(waiting(10, name="a"), waiting(7, name="b"), waiting(1, name="c"))
    plan = decided(whole, state)
    assert (plan.scheduled, ids(plan.waiting)) == ({"a": 10}, ["b", "c"])


def test_without_chunking_the_threshold_slices_all_the_same():
    limits = config(enable_chunked_prefill=False, long_prefill_token_threshold=5)
    assert decided(limits, queue(waiting(30, name="a"))).scheduled == {"a": 5}


def test_newcomers_join_in_their_order_behind_who_runs():
    state = queue(waiting(3, name="b"), waiting(2, name="c"), pool=pool(None, 2))
    plan = decided(config(), state._replace(running=(decoding("a", 5, 1, 2),)))
    assert (ids(plan.running), list(plan.scheduled)) == (["a", "b", "c"], ["a", "b", "c"])
    assert (plan.waiting, plan.budget) == ((), 16 - 1 - 3 - 2)


def test_nobody_is_admitted_beyond_max_num_seqs():
    members = [waiting(1, name=name) for name in "abc"]
    plan = decided(config(max_num_seqs=2), queue(*members))
    assert (ids(plan.running), ids(plan.waiting)) == (["a", "b"], ["c"])


def test_nobody_is_admitted_when_the_budget_is_spent():
    plan = decided(config(), queue(waiting(16, name="a"), waiting(1, name="b")))
    assert (plan.budget, ids(plan.waiting)) == (0, ["b"])


def test_the_last_token_of_the_budget_is_given_to_a_newcomer():
    state = queue(waiting(5), running=(decoding("old", 4, 1),), pool=pool(None, 1))
    assert decided(config(max_num_batched_tokens=2), state).scheduled == {"old": 1, "new": 1}


def test_who_is_left_out_has_computed_no_more_than_before():
    state = State(running=(decoding("a", 5, 1, 2), decoding("b", 6, 3, 4)), pool=pool(None, 4))
    [seen] = steps(config(max_num_batched_tokens=1), state, 1)
    assert seen["computed"] == {"a": 6, "b": 6}


def test_who_lacks_one_token_emits_none():
    [first, second] = steps(config(max_num_batched_tokens=4), queue(waiting(5)), 2)
    assert (first["scheduled"], first["emitted"]) == ({"new": 4}, {})
    assert (second["scheduled"], second["emitted"]) == ({"new": 1}, {"new": 1})


def test_who_runs_is_left_out_when_the_budget_is_spent():
    """A chunk of 16 leaves nothing for the decode behind it."""
    long = waiting(40, name="a", computed=16, blocks=(1, 2, 3, 4))
    state = State(running=(long, decoding("b", 5, 5, 6)), pool=pool(None, 6))
    plan = decided(config(), state)
    assert (plan.scheduled, ids(plan.running)) == ({"a": 16}, ["a", "b"])


def test_the_first_who_does_not_fit_ends_the_admission():
    """Two blocks free: b needs three; c, who would fit, stays behind it."""
    state = queue(waiting(9, name="b"), waiting(1, name="c"), pool=pool(4, 2))
    plan = decided(config(), state._replace(running=(decoding("a", 5, 1, 2),)))
    assert (plan.scheduled, ids(plan.waiting)) == ({"a": 1}, ["b", "c"])


@pytest.mark.parametrize(("someone_runs", "admitted"), [(True, False), (False, True)])
def test_the_watermark_is_kept_only_while_somebody_runs(someone_runs, admitted):
    """Five blocks of eight are free and two are to be kept: four for 13 tokens are one too many."""
    limits = config(num_blocks=8, watermark=0.25)
    runner = decoding("a", 9, 1, 2, 3)
    state = State((waiting(13, name="b"),), (runner,) if someone_runs else (), pool(8, 3))
    assert ("b" in decided(limits, state).scheduled) is admitted


def test_who_was_admitted_in_the_same_step_runs_already():
    """Eight blocks: a takes four, b could have four, but two are to be kept from then on."""
    limits = config(num_blocks=8, watermark=0.25, max_num_batched_tokens=32)
    plan = decided(limits, queue(waiting(13, name="a"), waiting(13, name="b"), pool=Pool(8)))
    assert plan.scheduled == {"a": 13}
    plan = decided(limits, queue(waiting(13, name="a"), waiting(8, name="b"), pool=Pool(8)))
    assert plan.scheduled == {"a": 13, "b": 8}


@pytest.mark.parametrize(("reserve", "scheduled"), [(True, {}), (False, {"a": 16})])
def test_the_gate_refuses_a_prompt_whose_first_chunk_would_fit(reserve, scheduled):
    """20 tokens need five blocks; four are free, enough for a chunk of 16."""
    limits = config(num_blocks=6, reserve_full_isl=reserve)
    state = State(waiting=(waiting(20, name="a"),), pool=pool(6, 2))
    assert decided(limits, state).scheduled == scheduled


def test_a_hit_is_not_computed_again():
    """Of nine tokens eight are cached; of eight, four: the last token must be computed."""
    s4, s8 = (("s", 4),), (("s", 8),)
    cache = Pool(9, (), 3, ((2, s8), (1, s4)), {s4: (1,), s8: (2,)})
    for prompt, tokens in ((9, 1), (8, 4)):
        newcomer = waiting(prompt, content=(("s", prompt),))
        seen = stepped(CACHING, State(waiting=(newcomer,), pool=cache))[1]
        assert seen["scheduled"] == {"new": tokens}
        assert seen["prefix_hit"] == {"new": prompt - tokens}
        assert seen["computed"] == {"new": prompt}


def test_who_starts_together_shares_what_the_first_is_about_to_compute():
    prompt = (("s", 9),)
    state = queue(waiting(9, name="a", content=prompt), waiting(9, name="b", content=prompt))
    seen = stepped(CACHING, state)[1]
    assert seen["scheduled"] == {"a": 9, "b": 1}
    assert seen["blocks"] == {"a": [1, 2, 3], "b": [1, 2, 4]}
    assert seen["prefix_hit"] == {"a": 0, "b": 8}


def full(limits, *running, waits=()):
    """The decision where the running requests hold all blocks of the pool."""
    held = max(block for sequence in running for block in sequence.blocks)
    return decided(limits, State(waits, running, pool(held, held)))


def test_for_lack_of_a_block_who_was_admitted_last_gives_way():
    """a needs a second block, b and c do not."""
    a, b, c = decoding("a", 4, 1), decoding("b", 5, 2, 3), decoding("c", 6, 4, 5)
    plan = full(config(), a, b, c)
    assert (plan.preempted, plan.scheduled) == (("c",), {"a": 1, "b": 1})
    assert plan.running == (a._replace(blocks=(1, 5)), b)
    assert plan.waiting == (c.rewound(),)
    assert plan.pool == Pool(5, (4,), 6)
    assert plan.budget == 14


def test_as_many_give_way_as_it_takes_the_last_of_them_first_in_line():
    """All need their second block: c's goes to a, and b, now the last, is its own victim."""
    a, b, c = decoding("a", 4, 1), decoding("b", 4, 2), decoding("c", 4, 3)
    plan = full(config(), a, b, c, waits=(waiting(1),))
    assert (plan.preempted, plan.scheduled) == (("c", "b"), {"a": 1})
    assert plan.running == (a._replace(blocks=(1, 3)),)
    assert ids(plan.waiting) == ["b", "c", "new"]


def test_a_chunk_may_cost_several_their_place_in_one_step():
    """a goes on with 12 tokens and needs three blocks."""
    a = waiting(16, name="a", computed=4, blocks=(1,))
    b, c = decoding("b", 5, 2, 3), decoding("c", 5, 4, 5)
    plan = full(config(), a, b, c)
    assert (plan.preempted, plan.scheduled) == (("c", "b"), {"a": 12})
    assert (plan.running[0].blocks, plan.pool.head) == ((1, 3, 2, 5), (4,))


def test_whoever_is_last_and_lacks_a_block_is_preempted_itself():
    a, b = decoding("a", 5, 1, 2), decoding("b", 4, 3)
    plan = full(config(), a, b)
    assert (plan.preempted, plan.scheduled) == (("b",), {"a": 1})
    assert (plan.running, ids(plan.waiting)) == ((a,), ["b"])


def test_of_blocks_that_are_shared_only_the_last_holder_frees_any():
    """a needs two blocks: c frees one, since b holds the other, too; b frees that and its own."""
    a = waiting(12, name="a", computed=4, blocks=(1,))
    b, c = decoding("b", 5, 2, 3), decoding("c", 5, 2, 4)
    plan = full(config(), a, b, c)
    assert (plan.preempted, plan.scheduled) == (("c", "b"), {"a": 8})
    assert (plan.running[0].blocks, plan.pool.head) == ((1, 3, 2), (4,))


def test_nobody_is_admitted_in_a_step_that_preempted():
    """b leaves two blocks, a takes one: the newcomer would fit."""
    a, b = decoding("a", 4, 1), decoding("b", 5, 2, 3)
    state = State((waiting(1),), (a, b), pool(3, 3))
    first, second = steps(config(), state, 2)
    assert (first["preempted"], first["scheduled"]) == (["b"], {"a": 1})
    assert (first["waiting"], first["running"]) == (["b", "new"], ["a"])
    # b now has 6 tokens to compute and comes first: no request passes it.
    assert (second["scheduled"], second["waiting"]) == ({"a": 1}, ["b", "new"])


def important(name, priority, computed, *blocks):
    """A decoding request that came as its priority says: the least important last."""
    return decoding(name, computed, *blocks, priority=priority, arrival=priority)


def test_by_priority_the_least_important_gives_way_wherever_it_runs():
    a, low, c = important("a", 0, 4, 1), important("low", 2, 5, 2, 3), important("c", 1, 5, 4, 5)
    plan = full(PRIORITY, a, low, c)
    assert (plan.preempted, plan.scheduled) == (("low",), {"a": 1, "c": 1})
    assert plan.running == (a._replace(blocks=(1, 3)), c)


def test_of_equally_important_ones_who_came_last_gives_way():
    a = decoding("a", 4, 1, arrival=0)
    late, early = decoding("late", 5, 2, 3, arrival=2), decoding("early", 5, 4, 5, arrival=1)
    assert full(PRIORITY, a, late, early).preempted == ("late",)


def test_a_victim_that_was_served_in_this_step_returns_its_share_of_the_budget():
    """Two tokens: low's goes back to the budget, so that b and c get one each."""
    limits = config(policy="priority", max_num_batched_tokens=2, max_num_seqs=2)
    low, b, c = important("low", 2, 5, 1, 2), important("b", 1, 4, 3), important("c", 0, 5, 4, 5)
    plan = full(limits, low, b, c)
    assert (plan.preempted, plan.scheduled, plan.budget) == (("low",), {"b": 1, "c": 1}, 0)
    assert plan.running == (b._replace(blocks=(3, 2)), c)
    assert plan.waiting == (low.rewound(),)


def test_nobody_is_passed_over_when_somebody_in_front_leaves():
    """x and low were served; b, third, takes low's place as second; c comes next."""
    x, low = important("x", 0, 5, 1, 2), important("low", 3, 5, 3, 4)
    b, c = important("b", 1, 4, 5), important("c", 2, 5, 6, 7)
    plan = full(PRIORITY, x, low, b, c)
    assert list(plan.scheduled) == ["x", "b", "c"]
    assert ids(plan.running) == ["x", "b", "c"]


def test_by_priority_who_is_the_least_important_gives_up_and_ends_the_round():
    """low lacks a block; c behind it is not served in this step, and keeps running."""
    a, low, c = important("a", 0, 5, 1, 2), important("low", 2, 4, 3), important("c", 1, 5, 4, 5)
    plan = full(PRIORITY, a, low, c)
    assert (plan.preempted, plan.scheduled) == (("low",), {"a": 1})
    assert plan.running == (a, c)


def test_by_priority_a_preempted_request_waits_behind_more_important_ones():
    a, low = important("a", 0, 4, 1), important("low", 2, 5, 2, 3)
    plan = full(PRIORITY, a, low, waits=(waiting(1, priority=1, arrival=9),))
    assert ids(plan.waiting) == ["new", "low"]


def test_the_victim_is_picked_by_the_function_given():
    """Here it is who runs first."""
    a, b = decoding("a", 5, 1, 2), decoding("b", 4, 3)
    state = State(running=(a, b), pool=pool(3, 3))
    plan = scheduler.schedule(config(), state, lambda _, plan: plan.running[0])
    assert (plan.preempted, plan.scheduled) == (("a",), {"b": 1})


def test_a_preempted_request_begins_anew_and_hits_what_is_left_of_its_own():
    """b: a prompt of 6 and three tokens, of which 8 are computed and fill two blocks. a takes the
    second of them, and finishes; the first one is found again."""
    name = (("b", 6), ("out:b", 2))
    cached = {(("b", 4),): (2,), name: (3,)}
    a = decoding("a", 4, 1, max_tokens=2, output_len=2)
    b = waiting(6, 9, "b", computed=8, generated=3, blocks=(2, 3), published=2)
    state = State(running=(a, b), pool=Pool(3, (), 4, (), cached), arrived=2)
    first, second = steps(CACHING, state, 2)
    assert (first["preempted"], first["blocks"]) == (["b"], {})
    assert (first["emitted"], first["finished"]) == ({"a": 1}, {"a": "length"})
    assert (second["prefix_hit"], second["scheduled"]) == ({"b": 4}, {"b": 5})
    assert (second["emitted"], second["kind"]) == ({"b": 1}, "prefill")


def completed(state, *scheduled):
    running = {sequence.id: sequence for sequence in state.running}
    coming = {
        name: Coming(running[name].generated)
        for name in scheduled
        if name in running and running[name].num_uncomputed_tokens == 0
    }
    return completion.complete(config(), state, {**dict.fromkeys(scheduled), **coming})


def test_whoever_has_caught_up_emits_a_token():
    begun = waiting(20, name="begun", computed=12)
    last_chunk = waiting(5, 3, "last chunk", computed=5)
    decodes = decoding("decodes", 6, generated=0)
    spared = decoding("spared", 5)
    state = State(running=(begun, last_chunk, decodes, spared))
    after, emitted, finished = completed(state, "begun", "last chunk", "decodes", "gone")
    assert (emitted, finished) == ({"last chunk": 1, "decodes": 1}, {})
    served = (last_chunk._replace(generated=1), decodes._replace(generated=1))
    assert after == State(running=(begun, *served, spared))


@pytest.mark.parametrize(
    ("output_len", "max_tokens", "finished"),
    [(2, 2, {"a": "length"}), (2, 3, {"a": "eos"}), (3, 3, {}), (3, 4, {})],
)
def test_a_request_finishes_with_its_last_token_and_gives_back_its_blocks(
    output_len, max_tokens, finished
):
    sequence = waiting(5, max_tokens, "a", output_len=output_len, computed=6, generated=1)
    sequence, other = sequence._replace(blocks=(2, 1)), decoding("b", 5)
    after, emitted, why = completed(State(running=(sequence, other)), "a")
    assert (emitted, why) == ({"a": 1}, finished)
    assert ids(after.running) == (["b"] if finished else ["a", "b"])
    assert after.pool == (Pool(head=(1, 2)) if finished else Pool())


def test_a_first_token_may_be_the_last():
    seen = steps(config(), queue(waiting(5, 1, "a")), 1)[0]
    assert (seen["emitted"], seen["finished"]) == ({"a": 1}, {"a": "length"})
    assert (seen["running"], seen["computed"], seen["blocks"]) == ([], {}, {})


def test_aborts_are_reported_once_before_those_who_finish():
    sequence = waiting(5, 1, "a", computed=5)
    state = State(running=(sequence,), aborted=("y", "x"))
    after, _, finished = completed(state, "a")
    assert list(finished.items()) == [("y", "aborted"), ("x", "aborted"), ("a", "length")]
    assert (after.aborted, completed(after)[2]) == ((), {})


def test_aborted_before_the_step_a_request_leaves_its_room_to_others():
    """Two blocks: b fits when a is gone."""
    state = State((waiting(8, name="b"),), (decoding("a", 5, 1, 2),), pool(2, 2))
    after = scheduler.abort(config(), state, "a")
    seen = stepped(config(), after)[1]
    assert (seen["scheduled"], seen["finished"]) == ({"b": 8}, {"a": "aborted"})


def test_aborted_inside_the_step_a_request_has_had_its_tokens_and_emits_none():
    state = State((waiting(8, name="b"),), (decoding("a", 5, 1, 2),), pool(2, 2))
    state, seen = stepped(config(num_blocks=2), state, ("a",))
    assert (seen["scheduled"], seen["emitted"]) == ({"a": 1}, {})
    assert (seen["finished"], seen["running"], seen["waiting"]) == ({"a": "aborted"}, [], ["b"])
    assert (seen["free_blocks"], seen["kind"]) == (2, "decode")
    assert stepped(config(), state)[1]["scheduled"] == {"b": 8}


def test_aborted_inside_the_step_that_fills_a_block_a_request_leaves_it_to_be_found():
    state = queue(waiting(5, name="a", content=(("s", 5),)))
    state, _ = stepped(CACHING, state, ("a",))
    assert state.pool.cached == {(("s", 4),): (1,)}
    state = scheduler.arrive(CACHING, state, waiting(6, name="b", content=(("s", 6),)))
    assert stepped(CACHING, state)[1]["prefix_hit"] == {"b": 4}


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ((), "idle"),
        ((decoding("a", 5, 1, 2),), "decode"),
        ((waiting(5, name="a", computed=4, blocks=(1,)),), "prefill"),
        ((decoding("a", 5, 1, 2), waiting(5, name="b", computed=4, blocks=(3,))), "mixed"),
        # Not served, it does not count.
        ((waiting(40, name="a", computed=4, blocks=(1,)), decoding("b", 5, 2, 3)), "prefill"),
    ],
)
def test_a_step_is_of_the_kind_of_those_who_compute(members, kind):
    state = State(running=members, pool=pool(None, 3))
    assert stepped(config(), state)[1]["kind"] == kind


def test_a_step_shows_the_state_after_it():
    limits = config(enable_prefix_caching=True, num_blocks=20, max_num_seqs=3)
    a = decoding("a", 5, 1, 2, content=(("s", 5),), published=1)
    b = decoding("b", 5, 1, 3, content=(("s", 5),), published=1, prefix_hit=4)
    state = State(
        (waiting(20, name="c"), waiting(3, name="d")),
        (a, b),
        Pool(20, (), 4, (), {(("s", 4),): (1,)}),
        aborted=("x",),
    )
    assert stepped(limits, state)[1] == {
        "kind": "mixed",
        "scheduled": {"a": 1, "b": 1, "c": 14},
        "emitted": {"a": 1, "b": 1},
        "waiting": ["d"],
        "running": ["a", "b", "c"],
        "prefilling": ["c"],
        "preempted": [],
        "finished": {"x": "aborted"},
        "computed": {"a": 6, "b": 6, "c": 14},
        "blocks": {"a": [1, 2], "b": [1, 3], "c": [4, 5, 6, 7]},
        "prefix_hit": {"a": 0, "b": 4, "c": 0},
        "free_blocks": 13,
    }


def test_an_idle_step_shows_nothing():
    seen = stepped(config(), State())[1]
    assert seen["kind"] == "idle"
    assert not any(seen[key] for key in seen.keys() - {"kind"})
