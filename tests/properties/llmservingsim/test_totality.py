"""Whatever a target shows, no predicate raises: odd observations are for the rules to judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.properties.ledger import Ledger
from schedproof.properties.llmservingsim import strategies
from schedproof.properties.monitor import Monitor
from schedproof.properties.rules import PREDICATES
from schedproof.spec.catalogue import load

from ..test_totality import IDS, NAMES, VALUES, requests, state, steps

SYSTEM = "llmservingsim"
REVISIONS = ("documented", "head")


@st.composite
def ledgers(draw: st.DrawFn, revision: str) -> Ledger:
    """What the nonsense that a target showed before may have led to."""
    book = Ledger(draw(strategies.configs("small", revision)), revision, SYSTEM)
    for name in NAMES[: draw(st.integers(0, len(NAMES)))]:
        book.accept(draw(requests(name)))
        if draw(st.integers(0, 9)) == 0:
            book.abort(name, draw(st.booleans()))
    for account in list(book.live.values()):
        account.computed = draw(st.sampled_from((0, 1, account.prompt, account.prompt + 1)))
        account.emitted = draw(st.integers(0, account.max_tokens + 1))
        account.prefix_hit = draw(st.integers(0, account.computed))
    if draw(st.booleans()):
        book.observe(draw(steps()))
    return book


@pytest.mark.parametrize("revision", REVISIONS)
@given(data=st.data())
def test_every_predicate_answers_on_any_ledger_and_step_and_changes_nothing(
    revision: str, data: st.DataObject
) -> None:
    ledger, step = data.draw(ledgers(revision)), data.draw(steps())
    before = state(ledger)
    for rule, predicate in PREDICATES[SYSTEM].items():
        message = predicate.broken(ledger, step)
        assert message is None or (isinstance(message, str) and message), rule
        assert isinstance(predicate.at_stake(ledger, step), bool), rule
    assert state(ledger) == before


@pytest.mark.parametrize("revision", REVISIONS)
@given(data=st.data())
def test_a_monitor_follows_a_run_of_nonsense_to_its_end(revision: str, data: st.DataObject) -> None:
    config = data.draw(strategies.configs("small", revision))
    judge = Monitor(load(SYSTEM), PREDICATES[SYSTEM], config, revision=revision, system=SYSTEM)
    observes = data.draw(st.frozensets(st.sampled_from(sorted(VALUES))))
    for name in NAMES:
        judge.accept(data.draw(requests(name)))
        if data.draw(st.booleans()):
            judge.abort(data.draw(IDS), data.draw(st.booleans()))
        seen, expected = data.draw(steps(observes)), data.draw(st.none() | steps())
        broken = judge.observe(seen, expected)
        assert all(one.message and one.step == judge.ledger.step - 1 for one in broken)
