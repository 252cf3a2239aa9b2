"""The ledger: what the client of a scheduler knows."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.ledger import Ledger

CONFIG = full_config(
    "spyre",
    "sound",
    {"block_size": 4, "chunk_size": 8, "max_model_len": 64, "max_batch_tkv": 128},
)


def ledger(*requests: Request) -> Ledger:
    book = Ledger(CONFIG)
    for one in requests:
        book.accept(one)
    return book


def request(name: str, prompt: int = 12, max_tokens: int = 3, output_len: int = 2) -> Request:
    return Request(
        id=name,
        arrival=0,
        prompt=((name, prompt),),
        max_tokens=max_tokens,
        output_len=output_len,
    )


def ids(accounts: list[Any]) -> list[str]:
    return [one.id for one in accounts]


def phases(book: Ledger) -> tuple[list[str], list[str], list[str]]:
    return ids(book.unstarted()), ids(book.ongoing()), ids(book.decoding())


def prefill(name: str, tokens: int, **fields: Any) -> Step:
    return Step(kind="prefill", scheduled={name: tokens}, **fields)


def test_a_request_goes_from_unstarted_over_ongoing_to_decoding() -> None:
    book = ledger(request("a"), request("b"))
    assert phases(book) == (["a", "b"], [], [])
    book.observe(prefill("a", 8))
    assert phases(book) == (["b"], ["a"], [])
    book.observe(prefill("a", 4, emitted={"a": 1}))
    assert phases(book) == (["b"], [], ["a"])
    account = book.accounts["a"]
    assert (account.computed, account.emitted, account.prefill_steps) == (12, 1, 2)
    assert book.last_was_prefill


def test_members_are_sorted_by_what_was_computed_before_the_step() -> None:
    book = ledger(request("a", 8), request("b", 8))
    book.observe(prefill("a", 8))
    mixed = Step(kind="mixed", scheduled={"a": 1, "b": 8, "stranger": 1})
    assert ids(book.prefill_members(mixed)) == ["b"]
    assert ids(book.decode_members(mixed)) == ["a"]
    book.observe(mixed)
    assert ids(book.decode_members(mixed)) == ["a", "b"]


def test_a_finished_request_leaves_with_its_reason() -> None:
    book = ledger(request("a", 8))
    book.observe(prefill("a", 8, emitted={"a": 1}, finished={"a": "eos"}))
    assert not book.live
    assert book.accounts["a"].ended == "eos"
    assert (book.step, book.busy_steps) == (1, 1)
    book.observe(Step(kind="idle", scheduled={}))
    assert (book.step, book.busy_steps) == (2, 1)


def test_an_abort_before_a_step_ends_a_request_at_once_and_is_to_be_reported() -> None:
    book = ledger(request("a"), request("b"))
    book.abort("a", inside=False)
    assert (list(book.live), book.aborts_to_report) == (["b"], {"a"})
    book.observe(Step(kind="idle", scheduled={}))
    assert book.aborts_to_report == set()


def test_an_abort_inside_a_step_ends_a_request_with_that_step() -> None:
    book = ledger(request("a"), request("b"))
    book.abort("a", inside=True)
    assert list(book.live) == ["a", "b"]
    book.observe(prefill("a", 8))
    assert (list(book.live), book.aborts_inside) == (["b"], set())
    assert book.accounts["a"].ended == "aborted"


def test_an_abort_of_the_unknown_or_the_finished_changes_nothing() -> None:
    book = ledger(request("a", 8))
    book.abort("nobody", inside=False)
    book.observe(prefill("a", 8, finished={"a": "eos"}))
    book.abort("a", inside=True)
    assert (book.aborts_to_report, book.aborts_inside) == (set(), set())


def test_work_is_every_chunk_twice_and_every_token() -> None:
    book = ledger(request("a", 12, 3), request("b", 8, 1, 1))
    assert book.work == (2 * 2 + 3) + (2 * 1 + 1)
    book.observe(prefill("a", 8))
    assert book.steps_left(book.accounts["a"]) == 2 * 1 + 3


def test_first_in_line_is_the_oldest_that_has_not_started() -> None:
    book = ledger(request("a"), request("b"))
    assert book.first_in_line is not None
    assert book.first_in_line[:2] == ("a", 0)
    book.observe(prefill("a", 8))
    assert book.first_in_line[:2] == ("b", 1)
    book.abort("b", inside=False)
    assert book.first_in_line is None


def test_the_allowance_of_the_first_in_line_stays_while_it_waits() -> None:
    book = ledger(request("a"), request("b"))
    book.observe(prefill("a", 8))
    noted = book.first_in_line
    book.observe(prefill("a", 4))
    book.accept(request("c"))
    assert book.first_in_line == noted


LENGTHS = st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(1, 20))


@given(st.lists(LENGTHS, min_size=1, max_size=5))
def test_the_books_agree_with_what_the_model_shows(lengths: list[tuple[int, int, int]]) -> None:
    target = ModelTarget()
    target.start("spyre", "sound", CONFIG)
    book = ledger()
    for number, (prompt, most, early) in enumerate(lengths):
        one = request(f"r{number}", prompt, most, min(most, early))
        if target.add(one.for_target())["ok"]:
            book.accept(one)
    allowance = book.work + 2 * len(book.accounts) + 2
    while book.live:
        seen = target.step()["step"]
        book.observe(Step(**seen))
        shown = {name: one.computed for name, one in book.live.items() if one.started}
        assert shown == seen["computed"]
        assert set(book.live) == {*seen["waiting"], *seen["running"]}
        assert book.busy_steps <= allowance
    assert all(one.emitted == one.output_len for one in book.accounts.values())
