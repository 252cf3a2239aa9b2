"""The rules about what a grammar allows, by example."""

from schedproof.model.scenario import Turn
from schedproof.properties.vllm.history import sessions
from schedproof.properties.vllm.history.run import Coming, state_of
from schedproof.properties.vllm.predicates import grammars

from .build import book, ran, request

KEYS = {"structured_outputs": True}
AHEAD = {**KEYS, "async_scheduling": True}
DRAFTS = {**KEYS, "num_speculative_tokens": 3}


def decoding(name="a", emitted=2, **more):
    return request(name, computed=5 + emitted, emitted=emitted, arrived_blocked=True, **more)


def step(masks, tokens=1, emitted=1, **more):
    shown = {"a": emitted} if emitted else {}
    return ran({"a": tokens}, "a", emitted=shown, masks=masks, **more)


def broken(run, now):
    return {
        rule: message
        for rule, predicate in grammars.PREDICATES.items()
        if (message := predicate.broken(run, now)) is not None
    }


def test_a_grammar_that_follows_the_output_breaks_nothing():
    run = book(decoding(), running="a", **KEYS)
    now = step({"a": (2,)}, grammars={"a": 3})
    assert broken(run, now) == {}
    assert all(
        grammars.PREDICATES[rule].exercised(run, now) for rule in ("V1-R59", "V1-R60", "V1-R64")
    )


def test_a_grammar_is_not_advanced_after_its_end():
    run = book(decoding(grammar_ends=2), running="a", **KEYS)
    assert broken(run, step({"a": (None,)}, grammars={"a": 2})) == {}
    assert broken(run, step({"a": (None,)}, grammars={"a": 3})) == {
        "V1-R59": "a has 3 tokens, and its grammar ends after 2, but its grammar has accepted 3"
    }


def test_a_grammar_that_is_not_shown_has_accepted_nothing():
    run = book(decoding(), running="a", **KEYS)
    assert broken(run, step({"a": (2,)}, grammars={})) == {
        "V1-R59": "a has 3 tokens, but its grammar has accepted 0"
    }


def test_a_mask_is_missing():
    run = book(decoding(), running="a", **KEYS)
    assert broken(run, step({})) == {"V1-R60": "a gets 0 of the 1 masks that it needs"}


def test_a_request_without_a_grammar_gets_a_mask():
    run = book(request("a", computed=7, emitted=2), running="a", **KEYS)
    assert broken(run, step({"a": (2,)})) == {"V1-R60": "a has no grammar, but gets a mask"}


def test_a_mask_of_another_place_or_grammar():
    run = book(decoding(), running="a", **KEYS)
    own = "instead of what its grammar allows after 2 tokens"
    for mask, allows in (
        (1, "what its grammar allows after 1 tokens"),
        (-1, "what another grammar allows"),
        (None, "every token"),
    ):
        found = broken(run, step({"a": (mask,)}))
        assert found == {"V1-R64": f"mask 1 of a allows {allows} {own}"}


def test_with_a_token_in_flight_the_mask_is_made_after_it():
    request = decoding(emitted=2, tokens_in_flight=1)
    request.computed = 8
    run = book(request, running="a", **AHEAD)
    run.system_state = state_of(run)._replace(flights=({"a": Coming(2)},))
    assert broken(run, step({"a": (3,)})) == {}
    assert "V1-R64" in broken(run, step({"a": (2,)}))
    assert broken(run, step({}, finished={"a": "length"})) == {}


def test_drafts_that_do_not_fit_are_verified():
    run = book(decoding(drafted=1, grammar_drafts=(3, 3, 1)), running="a", **DRAFTS)
    assert broken(run, step({"a": (2, 3)}, tokens=2)) == {}
    assert broken(run, step({"a": (2, 3, 4)}, tokens=3)) == {
        "V1-R65": "a verifies 2 drafts, but only 1 follow its 2 tokens and fit its grammar"
    }
    assert grammars.PREDICATES["V1-R65"].exercised(run, step({"a": (2, 3)}, tokens=2))


def test_what_is_not_shown_is_not_judged():
    run = book(decoding(), running="a", **KEYS)
    assert broken(run, step(None)) == {}


def test_the_reasoning_is_not_constrained_and_does_not_advance_the_grammar():
    run = book(decoding(grammar_begins=3), running="a", **KEYS)
    assert broken(run, step({"a": (None,)}, grammars={"a": 0})) == {}
    found = broken(run, step({"a": (2,)}, grammars={"a": 1}))
    assert (
        found["V1-R59"]
        == "a has 3 tokens, of which 3 are reasoning, but its grammar has accepted 1"
    )
    assert found["V1-R64"].endswith("instead of every token")
    run = book(decoding(grammar_begins=2), running="a", **KEYS)
    assert broken(run, step({"a": (2,)}, grammars={"a": 1})) == {}
    assert "V1-R64" in broken(run, step({"a": (None,)}, grammars={"a": 1}))


def test_a_mask_is_made_although_another_token_is_in_flight():
    three = {**AHEAD, "pipeline_parallel_size": 3}
    request = decoding(emitted=2, tokens_in_flight=1)
    request.computed = 8
    run = book(request, running="a", **three)
    state = state_of(run)
    run.system_state = state._replace(flights=({"b": None}, {"a": Coming(2)}))
    assert "V1-R64" in broken(run, step({"a": (2,)}, emitted=0))


def test_a_token_that_is_dropped_at_the_end_of_a_turn_needs_no_mask():
    turns = (Turn(prompt=(("b", 3),), max_tokens=2),)
    request = decoding(emitted=7, tokens_in_flight=1, turns=turns)
    request.computed = 13
    run = book(request, running="a", **AHEAD, streaming_inputs=True)
    assert broken(run, step({})) == {}


def test_a_turn_has_a_grammar_of_its_own():
    turns = (Turn(prompt=(("b", 3),), max_tokens=2, grammar_ends=5),)
    request = decoding(emitted=8, turns=turns, grammar_begins=1, grammar_ends=2)
    sessions.step([request], 0)
    assert (request.grammar_begins, request.grammar_ends) == (0, 5)
    request.turns, request.emitted = (Turn(prompt=(("b", 3),), max_tokens=2),), 2
    sessions.step([request], 1)
    assert not request.arrived_blocked
