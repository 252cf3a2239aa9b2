"""Parked requests, by example: one runs too early, one waits though loaded, a load takes blocks."""

import pytest

from schedproof.model.observation import Step
from schedproof.properties.rules.common import tokens_wrong
from schedproof.properties.rules.registry import observable
from schedproof.properties.vllm.history import loads as history_of_loads
from schedproof.properties.vllm.history.run import Coming, VllmState
from schedproof.properties.vllm.predicates import loads
from schedproof.spec.catalogue import load

from .build import book, ran, request

LOADS = {"kv_connector": True}


def parked(name="a", steps_left=2, **more):
    """A request that is parked since the first step; its load takes `steps_left` more steps."""
    return request(name, load_steps=2, parked_since=0, load_left=steps_left, **more)


def before(*accounts, step=1, held=None, **keys):
    """The history before a step; a request that is parked holds two blocks."""
    history = book(*accounts, **{**LOADS, **keys})
    history.step = step
    names = tuple(account.id for account in accounts if account.parked_since is not None)
    blocks = dict.fromkeys(names, (1, 2)) if held is None else held
    running = history.last.running if history.last else ()
    history.last = Step(kind="idle", scheduled={}, parked=names, blocks=blocks, running=running)
    return history


def after(scheduled=None, running="", **more):
    values = {"parked": ("a",), "blocks": {"a": (1, 2)}, "prefilling": (), **more}
    return ran(scheduled or {}, running, **values)


def test_a_request_runs_after_its_load_has_landed():
    early = before(parked(steps_left=1), step=2)
    assert loads.runs_too_early(early, after({"a": 1}, "a")) == (
        "a is scheduled, but its load takes 1 more steps"
    )
    assert loads.one_is_loading(early, after())
    assert loads.runs_too_early(early, after()) is None
    late = before(parked(steps_left=0), step=3)
    assert loads.runs_too_early(late, after({"a": 1}, "a")) is None
    assert not loads.one_is_loading(late, after())


def test_it_holds_its_blocks_meanwhile():
    history = before(parked())
    message = loads.runs_too_early(history, after(blocks={"a": (1,)}))
    assert message == (
        "a held 2 blocks, which are loaded for 2 more steps, but they have changed: it now holds 1"
    )
    assert loads.runs_too_early(history, after(blocks={"a": (1, 3)})) is not None
    assert loads.runs_too_early(history, after(blocks={})) is not None


def test_blocks_of_one_that_was_aborted_are_free_when_the_load_has_landed_and_not_before():
    for steps_left, blocks, breaks in (
        (2, {"a": (1, 2)}, False),
        (2, {}, True),
        (1, {}, False),
        (0, {}, False),
        (0, {"a": (1, 2)}, True),
    ):
        history = before(parked(steps_left=steps_left), step=3 - steps_left)
        account = history.live.pop("a")
        account.ended, account.ended_at = "aborted", 0
        message = loads.runs_too_early(history, after(parked=(), blocks=blocks))
        assert (message is not None) is breaks, (steps_left, blocks)


def test_a_load_leaves_what_others_still_need():
    """a holds two blocks of its 13 tokens and needs two more."""
    history = before(parked("a", prompt=13), request("b", 8, load_steps=1))
    blocks = {"a": (1, 2), "b": (3, 4)}
    step = after(parked=("a", "b"), blocks=blocks, free_blocks=1)
    assert loads.takes_what_others_need(history, step) == (
        "b begins to load and leaves 1 blocks free; a still need 2"
    )
    assert loads.one_begins_beside_others(history, step)
    enough = after(parked=("a", "b"), blocks=blocks, free_blocks=2)
    assert loads.takes_what_others_need(history, enough) is None


def test_of_two_loads_that_begin_in_one_step_the_last_leaves_room_for_the_first():
    history = before(request("a", 13, load_steps=1), request("b", 8, load_steps=1))
    blocks = {"a": (1, 2), "b": (3, 4)}
    step = after(parked=("a", "b"), blocks=blocks, free_blocks=1)
    assert loads.takes_what_others_need(history, step) is not None
    other = after(parked=("b", "a"), blocks=blocks, free_blocks=1)
    assert loads.takes_what_others_need(history, other) is None


@pytest.mark.parametrize(("free", "enough"), [(1, False), (2, True)])
def test_where_a_request_leaves_in_the_step_no_more_was_free_than_afterwards(free, enough):
    history = before(parked("a", prompt=13), request("b", 8, load_steps=1))
    step = after(
        parked=("a", "b"),
        blocks={"a": (1, 2), "b": (3, 4)},
        free_blocks=free,
        finished={"c": "length"},
    )
    assert (loads.takes_what_others_need(history, step) is None) == enough


def test_a_request_that_has_landed_and_fits_does_not_wait():
    history = before(parked(prompt=9, steps_left=0), step=3)
    waits = after(free_blocks=1)
    assert loads.waits_though_loaded(history, waits) == (
        "a, whose load has finished, waits although 10 tokens of the budget and a slot are left: "
        "it needs 1 blocks, and 1 are free"
    )
    assert loads.one_has_landed(history, waits)
    for reason in (
        after(free_blocks=0),
        after({"a": 1}, "a"),
        after(preempted=("b",)),
        after({"b": 10}, free_blocks=1),
    ):
        assert loads.waits_though_loaded(history, reason) is None
    loading = before(parked(prompt=9, steps_left=1), step=2)
    assert loads.waits_though_loaded(loading, waits) is None
    assert not loads.one_has_landed(loading, waits)


def test_a_request_that_has_landed_may_wait_for_the_lookahead_behind_its_padding():
    drafts = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "revision": "0.33"}
    history = before(parked(prompt=5, steps_left=0), step=3, enable_prefix_caching=False, **drafts)
    assert loads.waits_though_loaded(history, after(free_blocks=0)) is None
    assert loads.waits_though_loaded(history, after(free_blocks=1)) is not None


def test_the_watermark_is_kept_beside_requests_that_run():
    history = before(
        parked(prompt=9, steps_left=0), request("b"), step=3, running="b", watermark=0.25
    )
    assert loads.waits_though_loaded(history, after(running="b", free_blocks=2)) is None
    assert loads.waits_though_loaded(history, after(running="b", free_blocks=3)) is not None


def test_blocks_that_come_back_in_the_step_were_not_free_in_it():
    history = before(parked(prompt=9, steps_left=0), step=3, held={"a": (1, 2), "z": (7,)})
    assert loads.waits_though_loaded(history, after(free_blocks=1)) is None


def in_flight(*accounts, **more):
    """The history before a step while a decision is in flight that computes w."""
    history = before(*accounts, kv_connector=True, async_scheduling=True, **more)
    history.system_state = VllmState(flights=({"w": Coming()},))
    return history


def test_no_load_fills_what_is_written():
    """w, aborted, held blocks 5 and 6; its sixth token is computed still."""
    writer = request("w", computed=6, ended="aborted", blocks=(5, 6))
    history = in_flight(request("a", 8, load_steps=1), writer, held={})
    del history.live["w"]
    step = after(blocks={"a": (3, 6)})
    assert loads.fills_what_is_written(history, step) == (
        "a begins to load into block 6, which a step in flight writes for w"
    )
    assert loads.one_begins_beside_a_writer(history, step)
    for fine in (
        after(blocks={"a": (3, 5)}),  # filled before: nothing writes it
        after(blocks={"a": (3, 6), "w": (5, 6)}),  # w holds it still: found in the cache
        after(blocks={"a": (3, 6)}, parked=()),
    ):
        assert loads.fills_what_is_written(history, fine) is None
    history.system_state = VllmState()
    assert loads.fills_what_is_written(history, step) is None
    assert not loads.one_begins_beside_a_writer(history, step)


def test_a_block_with_the_same_tokens_may_have_been_found_in_the_cache():
    content = (("same", 8),)
    writer = request("w", 8, computed=8, ended="aborted", blocks=(5, 6), content=content)
    account = request("a", 8, load_steps=1, content=content)
    history = in_flight(account, writer, held={})
    assert loads.fills_what_is_written(history, after(blocks={"a": (5, 6)})) is None
    assert loads.fills_what_is_written(history, after(blocks={"a": (5, 9)})) is None


def test_where_steps_complete_at_once_nothing_is_on_its_way():
    history = before(request("w", computed=6), held={}, kv_connector=True)
    step = after(preempted=("w",), blocks={"w": (5, 6)}, free_blocks=0)
    assert loads.fills_what_is_written(history, step) is None
    assert not loads.one_begins_beside_a_writer(history, step)


def test_with_a_connector_every_rule_is_asked():
    fields = frozenset(field for rule in load("vllm") for field in rule.needs) | {"finished"}
    rules = observable(load("vllm"), "documented", fields, {"kv_connector": True}, "vllm")
    assert rules == observable(load("vllm"), "documented", fields, {}, "vllm")


def test_where_it_is_not_shown_which_requests_are_parked_few_rules_are_asked():
    fields = frozenset(field for rule in load("vllm") for field in rule.needs) - {"parked"}
    rules = observable(load("vllm"), "documented", fields, {"kv_connector": True}, "vllm")
    assert all(rule.id.startswith("ALL-") for rule in rules)
    assert not {rule.id for rule in rules} & {"ALL-R06", "ALL-R08", "ALL-R10", "ALL-R11", "ALL-R13"}


def sent(steps_left, ended="length"):
    """A request that has ended in step 0; sending its blocks takes `steps_left` more steps."""
    return request("a", send_steps=1, load_left=steps_left, ended=ended, ended_at=0)


def test_blocks_that_are_sent_are_held_until_then_and_no_longer():
    for steps_left, blocks, breaks in (
        (2, {"a": (1, 2)}, False),
        (2, {"a": (1,)}, True),
        (2, {}, True),
        (1, {}, False),
        (0, {}, False),
        (0, {"a": (1, 2)}, True),
    ):
        history = before(sent(steps_left), step=3 - steps_left, held={"a": (1, 2)})
        del history.live["a"]
        message = loads.freed_while_sent(history, after(parked=(), blocks=blocks))
        assert (message is not None) is breaks, (steps_left, blocks)
        assert loads.one_is_sent(history, after()) is (steps_left > 0)


def test_blocks_that_are_to_be_sent_stay_from_the_last_step_on():
    for reason, send_steps, blocks, breaks in (
        ("length", 1, {}, True),
        ("length", 0, {}, True),
        ("length", 1, {"a": (1, 2)}, False),
        ("aborted", 1, {}, False),
        ("length", None, {}, False),
    ):
        history = before(request("a", send_steps=send_steps), held={"a": (1, 2)})
        message = loads.freed_while_sent(history, after(finished={"a": reason}, blocks=blocks))
        assert (message is not None) is breaks, (reason, send_steps, blocks)


def test_blocks_of_one_that_was_aborted_are_not_sent():
    history = before(sent(2, "aborted"), held={"a": (1, 2)})
    assert loads.freed_while_sent(history, after(parked=(), blocks={})) is None


@pytest.mark.parametrize(("parked_since", "breaks"), [(0, True), (None, False)])
def test_an_aborted_load_is_waited_for_only_if_it_was_seen_to_begin(parked_since, breaks):
    aborted = sent(3, "aborted")
    aborted.send_aborted, aborted.load_steps, aborted.parked_since = True, 3, parked_since
    history = before(aborted, held={"a": (1, 2)})
    message = loads.freed_while_sent(history, after(parked=(), blocks={}))
    assert (message is not None) is breaks


def test_steps_in_which_a_request_waited_that_has_given_up_are_no_livelock():
    gone = request("a", deferrals=3, ended="aborted", ended_at=4)
    history = book(gone, request("b"), **LOADS)
    depth = history.features.depth(history.config)
    for history.step, history.barren_steps, waits in ((5, 2, 3), (9, 2, 0)):
        assert history.features.idle_steps(history) == depth + waits


def test_what_a_connector_has_beyond_the_cache_is_not_computed():
    for external, hit, breaks in ((8, 0, True), (8, 4, True), (8, 8, False), (3, 0, False)):
        history = book(request("a", 12, external=external), **LOADS)
        step = ran({"a": 10 - hit}, "a", prefix_hit={"a": hit})
        assert bool(loads.computes_what_can_be_loaded(history, step)) is breaks
    history = book(request("a", 12, external=8, parked_since=0), **LOADS)
    assert loads.computes_what_can_be_loaded(history, ran({"a": 10}, "a")) is None
    begins = ran({}, "", "a", parked=("a",))
    assert loads.one_begins(book(request("a", external=4), **LOADS), begins)
    assert not loads.one_begins(history, begins)


def test_a_request_does_not_start_from_what_failed_to_load():
    """Blocks of four; the load fails from token 6 on: one block of four is right."""
    account = parked(steps_left=0, prompt=8, load_fails_at=6, tokens_loading=8)
    history = before(account, enable_prefix_caching=False)
    right = after({"a": 4}, "a", computed={"a": 8})
    assert loads.builds_on_what_failed(history, right) is None
    assert loads.one_joins_after_a_failure(history, right)
    assert loads.builds_on_what_failed(history, after({"a": 1}, "a", computed={"a": 8})) == (
        "a starts at token 7, although its load failed from token 6 on"
    )


@pytest.mark.parametrize(("fails_at", "brought"), [(None, 6), (6, 6), (7, 6), (5, 4), (3, 0)])
def test_a_load_brings_all_its_tokens_unless_it_fails_before_their_end(fails_at, brought):
    account = request("a", 6, external=6, load_fails_at=fails_at)
    config = before(account).config
    assert history_of_loads.tokens_loaded(config, account) == brought


def test_where_it_starts_after_a_preemption_is_a_question_of_what_blocks_hold():
    account = parked(steps_left=0, prompt=8, load_fails_at=0, preemptions=1)
    history = before(account, enable_prefix_caching=False)
    assert loads.builds_on_what_failed(history, after({"a": 1}, "a", computed={"a": 8})) is None
    assert not loads.one_joins_after_a_failure(history, after({"a": 1}, "a", computed={"a": 8}))


def test_what_another_has_computed_may_be_found_instead():
    account = parked(steps_left=0, prompt=8, load_fails_at=0, content=(("shared", 8),))
    other = request("b", 8, computed=8, content=(("shared", 8),))
    history = before(account, other)
    assert loads.builds_on_what_failed(history, after({"a": 4}, "a", computed={"a": 8})) is None


def test_a_request_that_lost_its_blocks_may_go_before_one_that_has_landed():
    lost = parked("b", steps_left=0, load_fails_at=0)
    history = before(parked(steps_left=0), lost)
    history.last = Step(kind="idle", scheduled={}, parked=("a",), blocks={"a": (1, 2)}, running=())
    assert loads.first_landed(history, after()) is None


FAIL = {"kv_load_failure_policy": "fail"}


def test_a_request_whose_load_has_failed_ends_with_an_error_when_the_load_ends():
    history = before(parked(steps_left=1, external=8, prompt=8, load_fails_at=5), **FAIL)
    assert loads.one_fails_now(history, after())
    failed = "although its load failed from token 5 on: it must end with an error"
    goes_on = f"a continues, {failed}"
    assert loads.outlives_its_failed_load(history, after()) == goes_on
    other = f"a finishes with 'length', {failed}"
    assert loads.outlives_its_failed_load(history, after(finished={"a": "length"})) == other
    ends = after(finished={"a": "error"}, parked=(), blocks={})
    assert loads.outlives_its_failed_load(history, ends) is None
    assert loads.runs_too_early(history, ends) is None
    assert tokens_wrong(history, ends) is None


def test_no_other_request_ends_with_an_error():
    early = after(finished={"a": "error"}, parked=(), blocks={})
    says = "a ends with an error, but none of its loads fails in this step"
    for account, keys in (
        (parked(steps_left=2, external=8, prompt=8, load_fails_at=5), FAIL),
        (parked(steps_left=1, external=8, prompt=8, load_fails_at=8), FAIL),
        (parked(steps_left=1, external=8, prompt=8), FAIL),
        (parked(steps_left=1, external=8, prompt=8, load_fails_at=5), {}),
        (request("a", 8), FAIL),
    ):
        assert loads.outlives_its_failed_load(before(account, **keys), early) == says
    cannot_run = request("a", 8)
    cannot_run.never_runnable = "max_model_len"
    assert loads.outlives_its_failed_load(before(cannot_run, **FAIL), early) is None
    history = before(parked(steps_left=1, external=8, prompt=8, load_fails_at=5))
    assert tokens_wrong(history, early) == "a finished (error) after 0 tokens of 8"


def test_a_load_that_ends_and_fails_in_its_first_step_is_not_seen():
    """Where the connector has it all at once the request is never shown as parked."""
    history = before(request("a", 8, external=8, load_fails_at=0), request("b", 4), **FAIL)
    ends = after({"b": 4}, "b", finished={"a": "error"}, parked=(), blocks={})
    assert loads.one_fails_now(history, ends)
    assert loads.outlives_its_failed_load(history, ends) is None
    stays = after({"b": 4}, "b", waiting=("a",))
    assert loads.outlives_its_failed_load(history, stays) is not None
    observed = after({"a": 1}, "a", finished={"a": "length"}, parked=())
    assert loads.outlives_its_failed_load(history, observed) is None


def test_a_failure_is_no_livelock():
    history = before(
        parked(steps_left=1, external=8, prompt=8, load_fails_at=0), request("b"), **FAIL
    )
    history.observe(after(finished={"a": "error"}, parked=(), blocks={}))
    assert history.barren_steps == 0


def test_a_load_is_under_way_until_it_has_landed():
    account = request("a", load_steps=2)
    history, steps = book(account, **LOADS), []
    for number in range(5, 9):
        history.step = number
        history_of_loads.book(history, after())
        steps.append(account.load_left)
    assert (account.parked_since, steps) == (5, [2, 1, 0, 0])


def test_of_an_aborted_request_it_is_not_known_whether_it_was_parked():
    aborted = request("b", load_steps=2, ended="aborted")
    history = book(aborted, **LOADS)
    history_of_loads.note_end(aborted)
    assert history_of_loads.under_way(LOADS, [aborted], after())
    for _ in range(3):
        history_of_loads.book(history, after())
    assert not history_of_loads.under_way(LOADS, [aborted], after())


def test_of_a_request_that_had_started_it_is_known_that_it_was_not_parked():
    aborted = request("b", computed=4, load_steps=2, ended="aborted")
    history_of_loads.note_end(aborted)
    assert aborted.load_left == 0


def test_a_load_goes_on_where_the_worker_reports():
    """With two decisions in flight the first one that is taken brings no report."""
    account = request("a", load_steps=2)
    history = book(account, **LOADS, async_scheduling=True)
    steps = []
    for flights in ((), ({"b": Coming()},)):
        history.system_state = VllmState(flights=flights)
        history_of_loads.book(history, after({"b": 1}))
        steps.append(account.load_left)
    assert steps == [3, 2]
    assert account.blocks == (1, 2)


def test_steps_in_which_all_are_loaded_are_no_livelock():
    history = before(parked(steps_left=9), step=1, **LOADS)
    for _ in range(8):
        history.observe(after())
    assert (history.barren_steps, history.busy_steps) == (0, 0)
    for _ in range(5):
        history.observe(after())
    assert history.barren_steps == history.busy_steps == 5
