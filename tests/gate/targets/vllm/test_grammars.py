"""Scripted grammars in real releases: what they accept, and what masks the worker applies."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.protocol_checks import read_request
from schedproof.gate.targets.vllm import grammars

REQUEST = {"id": "a", "prompt": [["a", 4]], "max_tokens": 4, "grammar_steps": 1}


def matcher(**changes):
    return grammars.Matcher(7, read_request(REQUEST | changes))


def outputs(matched, count):
    return [matched._output.token(number) for number in range(count)]


def test_a_grammar_accepts_the_output_in_order_up_to_its_end():
    own = matcher(grammar_ends=2)
    first, second, third = outputs(own, 3)
    assert not own.accept_token(second)
    assert own.accept_token(first)
    assert own.accept_token(second)
    assert own.is_terminated()
    assert not own.accept_token(third)


def test_a_grammar_accepts_a_draft_only_at_its_place():
    own = matcher()
    assert not own.accept_token(grammars.fitting_draft(1))
    assert own.accept_token(grammars.fitting_draft(0))
    own.rollback(1)
    assert own.tokens == []
    assert not own.accept_token(grammars.MISFIT)


def test_proposed_drafts_are_those_that_fit_and_then_misfits():
    own = grammars.Grammars()
    own.compile(
        SimpleNamespace(structured_output_request=SimpleNamespace(grammar=None)),
        read_request(REQUEST | {"grammar_drafts": [1, 2], "grammar_fails": True}),
        SimpleNamespace(reasoner=None),
    )
    own._matchers["a"] = matcher(grammar_drafts=[1, 2])
    assert own.drafts("a", 3, 3) == [*map(grammars.fitting_draft, (3, 4)), grammars.MISFIT]
    assert grammars.MISFIT not in own.drafts("b", 3, 3)


@pytest.mark.parametrize("wrong", [3, "x", [1.5]])
def test_a_list_of_drafts_is_checked(wrong):
    with pytest.raises(Exception, match="'a'"):
        read_request(REQUEST | {"grammar_drafts": wrong})


def test_a_release_makes_masks_from_the_grammar_of_each_request(vllm):
    vllm.begin(structured_outputs=True, num_speculative_tokens=2)
    vllm.ask("a", max_tokens=5, grammar_drafts=[1], accepted=[1])
    vllm.ask("b", max_tokens=3)
    first, second = vllm.step(), vllm.step()
    assert (first["masks"], first["grammars"]) == ({"a": [0]}, {"a": 1})
    assert (second["masks"], second["grammars"]) == ({"a": [1, 2]}, {"a": 3})


def test_a_grammar_begins_after_the_reasoning():
    own = matcher(grammar_begins=2, grammar_ends=3)
    first, _, third = outputs(own, 3)
    assert not own.accept_token(first)
    assert own.accept_token(third)
    assert own.is_terminated()


def test_drafts_of_the_reasoning_fit():
    own = matcher(grammar_begins=7, grammar_drafts=[0])
    assert [own.fitting(place, 3) for place in (3, 5, 7)] == [3, 2, 0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_parser_finds_the_end_of_the_reasoning(shared):
    manager = SimpleNamespace(reasoner=None, reasoner_cls=None)
    own = {} if shared else {"reasoner": None}
    structured = SimpleNamespace(reasoning_ended=None, **own)
    request = read_request(REQUEST | {"grammar_begins": 2})
    grammars.reason(manager, structured, request)
    parser = manager.reasoner if shared else structured.reasoner
    last = request.output.token(1)
    assert not parser.is_reasoning_end([1, 2])
    assert parser.is_reasoning_end_streaming([5, last], iter([last]))
    assert not parser.is_reasoning_end_streaming([5, last], [5])
    plain = SimpleNamespace(reasoning_ended=None, **own)
    grammars.reason(manager, plain, read_request(REQUEST))
    assert plain.reasoning_ended if shared else plain.reasoner.is_reasoning_end([1])


def test_a_release_constrains_the_tokens_after_the_reasoning(vllm):
    vllm.begin(structured_outputs=True)
    vllm.ask("a", max_tokens=3, grammar_begins=1, grammar_ends=2)
    vllm.ask("b", max_tokens=3, grammar_ends=3)
    seen = [vllm.step() for _ in range(3)]
    assert [step["masks"]["a"] for step in seen] == [[None], [1], [None]]
    assert [step["grammars"] for step in seen[:2]] == [{"a": 0, "b": 1}, {"a": 1, "b": 2}]
