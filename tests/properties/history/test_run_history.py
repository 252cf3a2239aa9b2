"""The history: what the client of a scheduler knows."""

from copy import copy
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from schedproof.model.observation import Step
from schedproof.model.replies import read_started, read_step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.history.features import features_of
from schedproof.properties.history.request_history import RequestHistory
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.registry import observable, predicates_of
from schedproof.properties.spyre.bounds import alone
from schedproof.spec.catalogue import load

CONFIG = full_config(
    "spyre", "sound", {"block_size": 4, "chunk_size": 8, "max_model_len": 64, "max_batch_tkv": 128}
)


def history(*requests):
    book = RunHistory(CONFIG, "sound", "spyre")
    for new in requests:
        book.accept(new)
    return book


def request(name, prompt=12, max_tokens=3, output_len=2):
    return Request(
        id=name, arrival=0, prompt=((name, prompt),), max_tokens=max_tokens, output_len=output_len
    )


def ids(accounts):
    return [account.id for account in accounts]


def phases(book):
    return ids(book.unstarted()), ids(book.ongoing()), ids(book.decoding())


def prefill(name, tokens, **fields):
    return Step(kind="prefill", scheduled={name: tokens}, **fields)


def test_a_request_goes_from_unstarted_over_ongoing_to_decoding():
    book = history(request("a"), request("b"))
    assert phases(book) == (["a", "b"], [], [])
    book.observe(prefill("a", 8))
    assert phases(book) == (["b"], ["a"], [])
    book.observe(prefill("a", 4, emitted={"a": 1}))
    assert phases(book) == (["b"], [], ["a"])
    account = book.requests["a"]
    assert (account.computed, account.emitted, account.prefill_steps) == (12, 1, 2)
    assert book.last_was_prefill


def test_members_are_sorted_by_what_was_computed_before_the_step():
    book = history(request("a", 8), request("b", 8))
    book.observe(prefill("a", 8, emitted={}, finished={}))
    mixed = Step(kind="mixed", scheduled={"a": 1, "b": 8, "stranger": 1}, emitted={}, finished={})
    assert ids(book.prefill_members(mixed)) == ["b"]
    assert ids(book.decode_members(mixed)) == ["a"]
    book.observe(mixed)
    assert ids(book.decode_members(mixed)) == ["a", "b"]


def test_a_finished_request_leaves_with_its_reason():
    book = history(request("a", 8))
    book.observe(prefill("a", 8, emitted={"a": 1}, finished={"a": "eos"}))
    assert not book.live
    assert book.requests["a"].ended == "eos"
    assert (book.step, book.busy_steps) == (1, 1)
    book.observe(Step(kind="idle", scheduled={}))
    assert (book.step, book.busy_steps) == (2, 1)


def test_without_emitted_and_finished_the_end_follows_from_what_was_scheduled():
    book = history(request("a", 8))  # two tokens to generate
    book.observe(prefill("a", 8))
    assert (book.requests["a"].emitted, list(book.live)) == (1, ["a"])
    book.observe(Step(kind="decode", scheduled={"a": 1}))
    assert (book.requests["a"].emitted, list(book.live)) == (2, [])
    assert book.requests["a"].ended == "eos"


def test_an_abort_before_a_step_ends_a_request_at_once_and_is_to_be_reported():
    book = history(request("a"), request("b"))
    book.abort("a", inside=False)
    assert (list(book.live), book.aborts_to_report) == (["b"], {"a"})
    book.observe(Step(kind="idle", scheduled={}))
    assert book.aborts_to_report == set()


def test_an_abort_inside_a_step_ends_a_request_with_that_step():
    book = history(request("a"), request("b"))
    book.abort("a", inside=True)
    assert list(book.live) == ["a", "b"]
    book.observe(prefill("a", 8))
    assert (list(book.live), book.aborts_inside) == (["b"], set())
    assert book.requests["a"].ended == "aborted"


def test_an_abort_of_the_unknown_or_the_finished_changes_nothing():
    book = history(request("a", 8))
    book.abort("none_there", inside=False)
    book.observe(prefill("a", 8, finished={"a": "eos"}))
    book.abort("a", inside=True)
    assert (book.aborts_to_report, book.aborts_inside) == (set(), set())


def test_work_is_every_chunk_twice_and_every_token():
    book = history(request("a", 12, 3), request("b", 8, 1, 1))
    assert book.work == (2 * 2 + 3) + (2 * 1 + 1)
    book.observe(prefill("a", 8))
    assert alone(CONFIG, book.requests["a"]) == 2 * 1 + 3


def test_first_in_line_is_the_oldest_that_has_not_started():
    book = history(request("a"), request("b"))
    assert book.first_in_line is not None
    assert book.first_in_line[:2] == ("a", 0)
    book.observe(prefill("a", 8))
    assert book.first_in_line[:2] == ("b", 1)
    book.abort("b", inside=False)
    assert book.first_in_line is None


def test_the_allowance_of_the_first_in_line_stays_while_it_waits():
    book = history(request("a"), request("b"))
    book.observe(prefill("a", 8))
    noted = book.first_in_line
    book.observe(prefill("a", 4))
    book.accept(request("c"))
    assert book.first_in_line == noted


def test_a_copied_account_has_everything_and_goes_on_by_itself():
    values: Any = {field.name: number for number, field in enumerate(fields(RequestHistory))}
    account = RequestHistory(**values)
    other = copy(account)
    assert other == account
    other.computed += 1
    assert account == RequestHistory(**values)


def test_who_has_ended_and_holds_nothing_is_forgotten_where_that_is_asked_for():
    book = history(request("a", 8), request("b"), request("c"))
    book.forgets = True
    book.abort("b", inside=False)
    assert list(book.requests) == ["a", "b", "c"]
    allowance = book.max_steps
    book.observe(prefill("a", 8, blocks={"a": (1, 2)}, finished={"a": "eos", "b": "aborted"}))
    assert list(book.requests) == ["a", "c"]
    book.observe(prefill("c", 8, blocks={"a": (1, 2), "c": (3,)}))
    assert list(book.requests) == ["a", "c"]
    book.observe(prefill("c", 4, blocks={"c": (3,)}))
    assert list(book.requests) == ["c"]
    assert (book.arrived, book.forgotten, book.max_steps) == (3, 2, allowance)
    book.accept(request("d"))
    assert book.requests["d"].arrival == 3


def test_nobody_is_forgotten_otherwise_nor_who_comes_again_under_the_same_name():
    book = history(request("a", 8))
    book.observe(prefill("a", 8, finished={"a": "eos"}))
    assert list(book.requests) == ["a"]
    book.forgets = True
    book.accept(request("b", 8))
    book.observe(prefill("b", 8, blocks={"b": (1,)}, finished={"b": "eos"}))
    book.accept(request("b", 8))
    book.observe(prefill("b", 8))
    assert book.requests["b"] is book.live["b"]


@pytest.mark.parametrize(
    ("system", "config", "may"),
    [
        ("spyre", {"prefix_caching": False}, True),
        ("spyre", {"prefix_caching": True}, True),
        ("vllm", {"enable_prefix_caching": False}, True),
        ("vllm", {"enable_prefix_caching": True}, True),
        ("vllm", {"enable_prefix_caching": True, "async_scheduling": True}, False),
        ("vllm", {"enable_prefix_caching": True, "kv_connector": True}, False),
        ("generic", {"enable_prefix_caching": True}, False),
        ("nano_vllm", {}, False),
        ("llmservingsim", {"enable_prefix_caching": False}, False),
    ],
)
def test_a_run_may_forget_where_the_cache_finds_only_what_blocks_hold(system, config, may):
    assert features_of(system).may_forget(config) == may


def test_of_an_open_ended_request_nobody_knows_how_much_it_generates():
    book = RunHistory(CONFIG, "sound", "spyre")
    book.accept(request("a"), open_ended=True)
    assert book.requests["a"].output_len is None


LOADS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 8), st.integers(1, 8), st.integers(0, 4)),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@given(LOADS, st.sampled_from(["sound", "documented", "2.1.2", "2.5.2"]), st.integers(0, 20))
def test_forgetting_changes_no_verdict(loads, revision, gives_up):
    config = CONFIG | {"num_blocks": 60, "max_batch_tkv": 96}
    target = ModelTarget()
    observes = read_started(target.start("spyre", revision, config)).observes
    rules = observable(load("spyre"), revision, observes, config)
    monitors = [
        Monitor(rules, predicates_of("spyre"), config, revision=revision, system="spyre")
        for _ in range(2)
    ]
    monitors[1].history.forgets = True
    verdicts = []
    for number, (prompt, most, early, wait) in enumerate(loads):
        new = request(f"r{number}", prompt, most, min(most, early))
        if target.add(new.for_target())["ok"]:
            for monitor in monitors:
                monitor.accept(new)
        for step in range(wait if number + 1 < len(loads) else 60):
            if step == gives_up:
                target.abort("r0")
                for monitor in monitors:
                    monitor.abort("r0", inside=False)
            seen = read_step(target.step(), observes)
            verdicts.append([monitor.observe(seen) for monitor in monitors])
    assert all(first == other for first, other in verdicts)
    assert monitors[0].exercised == monitors[1].exercised
    assert not monitors[1].history.requests.keys() - monitors[1].history.live.keys()


def cached(*requests, revision="sound"):
    book = RunHistory(CONFIG | {"prefix_caching": True}, revision, "spyre")
    for new in requests:
        book.accept(new)
    return book


@pytest.mark.parametrize(
    ("fields", "hit"),
    [
        ({"prefix_hit": {"a": 8}}, 8),
        ({"prefix_hit": {"a": 0}}, 0),
        ({"prefix_hit": {"b": 8}, "finished": {}}, 0),
        ({"prefix_hit": {"b": 8}}, 8),
        ({"prefix_hit": None}, 0),
        ({"prefix_hit": {}, "finished": {"a": "length"}}, 8),
        ({"prefix_hit": {}, "finished": {"a": "eos"}}, 8),
        ({"prefix_hit": {}, "finished": {"a": "aborted"}}, 0),
        ({"prefix_hit": {"a": 4}, "finished": {"a": "length"}}, 4),
        ({"prefix_hit": {}, "finished": {"b": "length"}}, 0),
    ],
    ids=[
        *(
            "shown",
            "shown as none",
            "of another",
            "ends not shown",
            "not shown",
            "finished at once",
            "by eos",
        ),
        *("aborted before", "shown and finished", "another finished"),
    ],
)
def test_a_hit_is_what_is_shown_or_what_a_finished_prompt_did_not_compute(fields, hit):
    book = cached(request("a", 12), request("b", 12))
    assert book.hit_now(prefill("a", 4, **fields), book.requests["a"]) == hit


def test_nobody_knows_the_hit_of_who_is_aborted_inside_its_first_step():
    book = cached(request("a", 12))
    book.abort("a", inside=True)
    seen = prefill("a", 4, prefix_hit={}, finished={"a": "aborted"})
    assert book.hit_now(seen, book.requests["a"]) is None
    assert book.hit_now(prefill("a", 4, prefix_hit={"a": 8}), book.requests["a"]) == 8


def test_there_is_no_hit_after_the_first_step_nor_without_a_cache():
    off = history(request("a"))
    assert off.hit_now(prefill("a", 4, prefix_hit={"a": 8}), off.requests["a"]) == 0
    book = cached(request("a", 20))
    book.observe(prefill("a", 4, prefix_hit={"a": 4}))
    assert book.hit_now(prefill("a", 8, prefix_hit={"a": 4}), book.requests["a"]) == 0
    assert book.hit_now(prefill("a", 8, finished={"a": "eos"}), book.requests["a"]) == 0


def test_a_hit_is_booked_once_as_computed():
    book = cached(request("a", 20))
    book.observe(prefill("a", 4, prefix_hit={"a": 4}))
    account = book.requests["a"]
    assert (account.computed, account.prefix_hit, account.prefill_steps) == (8, 4, 1)
    book.observe(prefill("a", 8, prefix_hit={"a": 4}))
    assert (account.computed, account.prefix_hit, account.prefill_steps) == (16, 4, 2)


def test_what_nobody_knows_is_booked_as_the_most_that_others_had_computed_of_it():
    shared = request("b", 12).prompt
    book = cached(request("b", 12), Request(id="a", arrival=0, prompt=shared, max_tokens=2))
    book.observe(prefill("b", 8))
    book.abort("a", inside=True)
    book.observe(prefill("a", 4, prefix_hit={"b": 0}, finished={"a": "aborted"}))
    assert (book.requests["a"].prefix_hit, book.requests["a"].computed) == (8, 12)


def decoding_two(revision):
    book = RunHistory(CONFIG, revision, "spyre")
    for name in "ab":
        book.accept(request(name, 8, 9, 9))
        book.observe(prefill(name, 8, emitted={name: 1}))
    return book


def test_who_is_paused_neither_decodes_nor_runs_until_it_comes_back():
    book = decoding_two("2.5.2")
    for steps in (1, 2):
        book.observe(Step(kind="decode", scheduled={"b": 1}, running=("b",), paused=("a",)))
        assert book.paused == {"a"}
        assert phases(book) == ([], [], ["b"])
        assert ids(book.running()) == ["b"]
        assert (book.requests["a"].paused_steps, book.requests["b"].paused_steps) == (steps, 0)
    book.observe(Step(kind="decode", scheduled={"a": 1}, running=("a",), paused=("b",)))
    assert ids(book.running()) == ["a"]
    assert (book.requests["a"].paused_steps, book.requests["b"].paused_steps) == (0, 1)


@pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2"])
def test_where_nobody_may_pause_a_list_of_paused_changes_nothing(revision):
    book = decoding_two(revision)
    book.observe(Step(kind="decode", scheduled={"b": 1}, running=("b",), paused=("a",)))
    assert book.paused == frozenset()
    assert ids(book.decoding()) == ids(book.running()) == ["a", "b"]
    assert book.requests["a"].paused_steps == 0


def test_running_are_those_who_have_started():
    book = history(request("a", 8), request("b"), request("c"))
    book.observe(prefill("a", 8, emitted={"a": 1}))
    book.observe(prefill("b", 8))
    assert phases(book) == (["c"], ["b"], ["a"])
    assert ids(book.running()) == ["b", "a"]


LENGTHS = st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(1, 20))


@given(st.lists(LENGTHS, min_size=1, max_size=5), st.booleans())
def test_the_books_agree_with_what_the_model_shows(lengths, prefix_caching):
    """Prompts are all of one stream, so that each is the beginning of a longer one."""
    config = CONFIG | {"prefix_caching": prefix_caching}
    target = ModelTarget()
    target.start("spyre", "sound", config)
    book = RunHistory(config, "sound", "spyre")
    for number, (prompt, most, early) in enumerate(lengths):
        new = request(f"r{number}", prompt, most, min(most, early))
        new = structs.replace(new, prompt=(("common", prompt),))
        if target.add(new.for_target())["ok"]:
            book.accept(new)
    allowance = book.work + 2 * len(book.requests) + 2
    while book.live:
        seen = target.step()["step"]
        book.observe(read_step({"ok": True, "step": seen}, frozenset()))
        shown = {name: account.computed for name, account in book.live.items() if account.started}
        assert shown == seen["computed"]
        hits = {name: account.prefix_hit for name, account in book.live.items() if account.started}
        assert hits == (seen["prefix_hit"] if prefix_caching else dict.fromkeys(shown, 0))
        assert set(book.live) == {*seen["waiting"], *seen["running"]}
        assert book.busy_steps <= allowance
    assert all(account.emitted == account.output_len for account in book.requests.values())


def test_the_books_know_who_is_paused_as_the_model_does():
    config = CONFIG | {"max_batch_tkv": 64}
    target = ModelTarget()
    target.start("spyre", "2.5.2", config)
    book = RunHistory(config, "2.5.2", "spyre")
    for number in range(4):
        new = request(f"r{number}", 12, 30, 30)
        assert target.add(new.for_target())["ok"]
        book.accept(new)
    longest = 0
    while book.live:
        seen = target.step()["step"]
        book.observe(read_step({"ok": True, "step": seen}, frozenset()))
        assert book.paused == set(seen["paused"])
        assert {sequence.id for sequence in book.running()} == set(seen["running"])
        longest = max(longest, *(account.paused_steps for account in book.requests.values()))
    assert longest > 1


@pytest.mark.parametrize(
    ("system", "preempted", "tokens"), [("vllm", (), 6), ("vllm", None, 12), ("spyre", None, 6)]
)
def test_where_preemptions_are_not_shown_a_request_may_have_come_back_with_a_hit(
    system, preempted, tokens
):
    book = RunHistory(full_config(system, "documented", {}), "documented", system)
    book.accept(request("a"))
    book.observe(prefill("a", 4, preempted=preempted))
    step = prefill("a", 2, preempted=preempted)
    assert book.reached(step, book.live["a"]) == tokens


@pytest.mark.parametrize(("emitted", "given_up"), [({}, False), ({"long": 1}, True)])
def test_a_request_that_can_never_run_is_given_up_unless_its_last_token_comes(emitted, given_up):
    """With decisions ahead it ends in a step that does not schedule it, and held its slot."""
    book = history(request("long", 12, 100))
    assert book.live["long"].never_runnable
    book.give_up(Step(kind="idle", scheduled={}, emitted=emitted, finished={"long": "length"}))
    assert ("long" in book.live) is given_up


@pytest.mark.parametrize("started", [False, True])
def test_a_request_that_ran_until_its_client_aborts_it_is_not_given_up(started):
    """It ends after the decision, although it could never have run to its end."""
    book = history(request("long", 12, 100))
    if started:
        book.observe(prefill("long", 4))
    book.abort("long", inside=True)
    book.give_up(Step(kind="idle", scheduled={}, finished={"long": "aborted"}))
    assert ("long" in book.live) is started


def test_a_request_that_is_given_up_in_the_step_that_aborts_it_ends_once():
    config = full_config("vllm", "documented", {"kv_connector": True, "max_model_len": 16})
    book = RunHistory(config, "documented", "vllm")
    book.accept(request("long", 12, 100))
    book.abort("long", inside=True)
    step = Step(kind="idle", scheduled={}, finished={"long": "aborted"})
    book.give_up(step)
    assert not book.aborts_inside
    book.observe(step)
    assert book.requests["long"].ended == "aborted"
