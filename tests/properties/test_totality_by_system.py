"""Whatever a target shows, no predicate raises: odd observations are for the rules to judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.properties.checking import lockstep
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.registry import predicates_of
from schedproof.properties.search.generators import generators_of
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from .test_totality import IDS, NAMES, VALUES, requests, state, steps

# Spyre has a file of its own, with what only it shows.
each = pytest.mark.parametrize(
    ("system", "revision"),
    [(one.name, one.revisions[-1]) for one in SYSTEMS.values() if one.name != "spyre"],
)


@st.composite
def histories(draw: st.DrawFn, system: str, revision: str) -> RunHistory:
    """What the nonsense that a target showed before may have led to."""
    book = RunHistory(draw(generators_of(system).configs("small", revision)), revision, system)
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


@each
@given(data=st.data())
def test_every_predicate_answers_on_any_history_and_step_and_changes_nothing(
    system, revision, data
):
    history, step = data.draw(histories(system, revision)), data.draw(steps())
    before = state(history)
    for rule, predicate in predicates_of(system).items():
        message = predicate.broken(history, step)
        assert message is None or (isinstance(message, str) and message), rule
        assert isinstance(predicate.exercised(history, step), bool), rule
    assert state(history) == before


@pytest.mark.slow
@each
@given(data=st.data())
def test_a_monitor_follows_a_run_of_nonsense_to_its_end(system, revision, data):
    config = data.draw(generators_of(system).configs("small", revision))
    judge = Monitor(load(system), predicates_of(system), config, revision=revision, system=system)
    observes = data.draw(st.frozensets(st.sampled_from(sorted(VALUES))))
    for name in NAMES:
        judge.accept(data.draw(requests(name)))
        if data.draw(st.booleans()):
            judge.abort(data.draw(IDS), data.draw(st.booleans()))
        seen, expected = data.draw(steps(observes)), data.draw(st.none() | steps())
        differs = None if expected is None else lockstep.differences(seen, expected)
        broken = judge.observe(seen, differs)
        assert all(one.message and one.step == judge.history.step - 1 for one in broken)
