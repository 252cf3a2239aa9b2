"""CanonicalNames are numbered by place; those that a menu mentions stay."""

from schedproof.model.observation import Step
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.model.spyre.state import Sequence
from schedproof.model.systems import full_config
from schedproof.solver.exploration.branching_history import BranchingHistory
from schedproof.solver.exploration.canonical_names import CanonicalNames, mentioned
from schedproof.solver.exploration.scope import menu_of

CONFIG = full_config("spyre", "sound", {"prefix_caching": True, "block_size": 4, "chunk_size": 4})


def _book(*names):
    history = BranchingHistory(CONFIG, "sound", "spyre")
    for name in names:
        history.accept(Request(id=name, arrival=0, prompt=((name, 4),), max_tokens=1))
    return history


def _running(name, *blocks):
    return Sequence(name, 4, 1, 1, ((name, 4),), blocks=blocks)


def test_requests_and_blocks_count_by_their_places():
    first, second = (
        CanonicalNames(
            frozenset(), [[_running(number, 7, 3), _running(other, 5)]], _book(number, other)
        )
        for number, other in (("a", "b"), ("b", "a"))
    )
    assert first.content((("a", 4), ("out:b", 1))) == second.content((("b", 4), ("out:a", 1)))
    assert [first.block(number) for number in (7, 3, 5)] == [1, 2, 3]
    assert first.request("a") != first.request("b")


def test_what_a_request_says_and_what_it_answers_are_two_things():
    names = CanonicalNames(frozenset(), [[_running("a")]], _book("a"))
    assert names.content((("a", 4),)) != names.content((("out:a", 4),))


def test_words_of_a_menu_stay():
    names = CanonicalNames(frozenset(), [[_running("a")]], _book("a"))
    assert names.content((("shared", 4),)) == (("shared", 4),)


def test_a_request_that_a_menu_mentions_is_not_taken_for_another():
    """Aborted before it began, it has left nothing, and a prompt may still cite its answer."""
    for kept, alike in ((frozenset(), True), (frozenset({"a"}), False)):
        member, other = (
            CanonicalNames(kept, [[_running(name)]], _book("a", "b")).content(((f"out:{name}", 4),))
            for name in ("a", "b")
        )
        assert (member == other) is alike


def test_the_free_blocks_count_with_what_they_hold_and_in_their_order():
    def reported(*tail):
        pool = Pool(size=4, tail=tail, cached={(("a", 4),): (tail[0][0],)})
        return CanonicalNames(frozenset(), [[_running("a")]], _book("a")).pool(pool)

    held, empty = (2, (("a", 4),)), (3, None)
    assert reported(held, empty) == reported((3, (("a", 4),)), (1, None))
    assert reported(held, empty) != reported(empty, held)


def test_a_menu_mentions_those_whose_answers_it_cites():
    prompts = [((("own", 4),), 1), ((("r0", 4), ("out:r0", 2)), 1)]
    assert mentioned(menu_of(prompts, [])) == frozenset({"r0"})


def test_who_has_ended_counts_too():
    history = _book("a", "b")
    history.observe(
        Step(kind="prefill", scheduled={"a": 4}, emitted={"a": 1}, finished={"a": "length"})
    )
    names = CanonicalNames(frozenset(), [[_running("b")]], history)
    assert names.content((("a", 4),)) != (("a", 4),)
