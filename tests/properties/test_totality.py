"""Whatever a target shows, no predicate raises: odd observations are for the rules to judge."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.observation import FIELDS, REQUIRED
from schedproof.model.replies import read_step
from schedproof.model.scenario import Request
from schedproof.model.spyre.model import REVISIONS
from schedproof.properties.checking import lockstep
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.registry import predicates_of
from schedproof.properties.search.generators import generators_of
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

NAMES = ("a", "b", "c")
STRANGER = "none_there"
IDS = st.sampled_from((*NAMES, STRANGER))
COUNTS = st.integers(0, 40)
KINDS_OF_EVENTS = st.sampled_from(("stored", "removed", "cleared"))
REASONS = st.sampled_from(("length", "eos", "aborted"))
QUEUES = st.lists(IDS, max_size=4)
BLOCKS = st.lists(st.integers(0, 9), max_size=6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        ("emitted", "computed", "prefix_hit", "emitted_at"), st.dictionaries(IDS, COUNTS)
    ),
    **dict.fromkeys(("blocks", "slot_blocks"), st.dictionaries(IDS, BLOCKS)),
    **dict.fromkeys(("waiting", "running", "prefilling", "paused", "preempted", "parked"), QUEUES),
    **dict.fromkeys(("deferred", "handed_over"), QUEUES),
    **dict.fromkeys(("tkv", "free_blocks", "reserved_blocks"), COUNTS),
    **dict.fromkeys(("prompt_throughput", "decode_throughput"), COUNTS),
    "encoder_inputs": st.dictionaries(IDS, BLOCKS),
    "encoder_dropped": QUEUES,
    "group_free_blocks": st.lists(COUNTS, max_size=3),
    "group_blocks": st.dictionaries(IDS, st.lists(BLOCKS, max_size=2)),
    **dict.fromkeys(("completes", "over"), st.booleans()),
    "cache_events": st.fixed_dictionaries(
        {},
        optional={
            "events": st.lists(st.fixed_dictionaries({"kind": KINDS_OF_EVENTS, "blocks": QUEUES})),
            **dict.fromkeys(("entered", "left"), QUEUES),
        },
    ),
    "sent": st.fixed_dictionaries(
        {"computed": st.dictionaries(IDS, COUNTS)},
        optional={
            **dict.fromkeys(("new", "resumed", "dropped"), QUEUES),
            "blocks": st.dictionaries(IDS, st.lists(BLOCKS, max_size=2)),
            "tokens": st.dictionaries(IDS, COUNTS),
        },
    ),
    "left_pad_blocks": st.dictionaries(IDS, st.integers(-3, 9)),
    "masks": st.dictionaries(IDS, st.lists(st.none() | st.integers(-1, 9), max_size=4)),
    "grammars": st.dictionaries(IDS, COUNTS),
    "finished": st.dictionaries(IDS, REASONS),
}


@st.composite
def steps(draw, observes=None):
    """Anything that `read_step` lets pass."""
    scheduled = draw(st.dictionaries(IDS, COUNTS, max_size=3))
    busy = st.sampled_from(("prefill", "decode", "mixed"))
    shown = {name: VALUES[name] for name in sorted(VALUES if observes is None else observes)}
    seen = draw(st.fixed_dictionaries({}, optional=shown))
    reply = {"kind": draw(busy) if scheduled else "idle", "scheduled": scheduled, **seen}
    return read_step({"ok": True, "step": reply}, frozenset())


STREAMS = st.sampled_from((*NAMES, *(f"out:{name}" for name in NAMES), "else"))
PROMPTS = st.lists(st.tuples(STREAMS, st.integers(1, 12)), min_size=1, max_size=3)


@st.composite
def requests(draw, name):
    """Prompts that share words, those of a request unknown among them."""
    most = draw(st.integers(1, 8))
    return Request(
        id=name,
        arrival=0,
        prompt=tuple(draw(PROMPTS)),
        max_tokens=most,
        output_len=draw(st.integers(1, most)),
    )


@st.composite
def histories(draw, system, revision):
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
        if system == "spyre":
            account.prefill_steps = draw(st.integers(0, 4))
    if draw(st.booleans()):
        book.observe(draw(steps()))
    return book


def unasked(history, step):
    """Kinds of members without which the monitor does not ask a predicate of Spyre."""
    if history.system != "spyre":
        return ()
    absent = () if history.prefill_members(step) else ("prefill",)
    return absent if history.decode_members(step) else (*absent, "decode")


def state(history):
    """What a predicate might change."""
    parts = ("requests", "live", "paused", "aborts_to_report", "aborts_inside", "last", "step")
    return copy.deepcopy([getattr(history, part) for part in (*parts, "first_in_line", "work")])


def test_every_optional_field_of_a_step_is_drawn():
    assert VALUES.keys() == FIELDS - REQUIRED


EVERY = [
    *(("spyre", revision) for revision in REVISIONS),
    *((name, system.revisions[-1]) for name, system in SYSTEMS.items() if name != "spyre"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("system", "revision"), EVERY)
@given(data=st.data())
def test_every_predicate_answers_on_any_history_and_step_and_changes_nothing(
    system, revision, data
):
    history, step = data.draw(histories(system, revision)), data.draw(steps())
    before, absent = state(history), unasked(history, step)
    for rule, predicate in predicates_of(system).items():
        if predicate.members in absent or not predicate.concerns(history.config):
            continue
        message = predicate.broken(history, step)
        assert message is None or (isinstance(message, str) and message), rule
        assert isinstance(predicate.exercised(history, step), bool), rule
    assert state(history) == before


@pytest.mark.slow
@pytest.mark.parametrize(("system", "revision"), EVERY)
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
        assert all(finding.message and finding.step == judge.history.step - 1 for finding in broken)


@pytest.mark.slow
@given(steps(), steps())
def test_any_two_steps_can_be_compared(first, other):
    assert lockstep.differences(first, first) == []
    forward, back = lockstep.differences(first, other), lockstep.differences(other, first)
    assert [line.partition(":")[0] for line in forward] == [line.partition(":")[0] for line in back]
