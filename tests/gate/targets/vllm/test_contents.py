"""Prompts told from the hashes of full blocks, without vLLM: a block of two tokens has a hash that
names all tokens up to its end."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.vllm.recorder import FACTOR, SPARE, Contents, SameTokens, cut

BLOCK = 2


def request(name, tokens):
    return SimpleNamespace(
        request_id=name, num_prompt_tokens=len(tokens), block_hashes=hashes(tokens)
    )


def hashes(tokens):
    return [tokens[:end] for end in range(BLOCK, len(tokens) + 1, BLOCK)]


def generates(contents, of_request, tokens):
    of_request.block_hashes = hashes(tokens)
    contents.grown([of_request])


def test_the_first_prompt_is_told_in_its_own_words():
    assert Contents(BLOCK, 8).prompt_of(request("a", "xyz")) == [["a", 3]]


def test_full_blocks_that_another_had_are_told_in_its_words():
    contents = Contents(BLOCK, 8)
    contents.prompt_of(request("a", "wxyz"))
    assert contents.prompt_of(request("b", "wxyv")) == [["a", 2], ["b", 2]]
    assert contents.prompt_of(request("c", "wxyz")) == [["a", 4]]


def test_what_another_generated_is_told_as_its_output():
    contents = Contents(BLOCK, 8)
    written = request("a", "wxy")
    contents.prompt_of(written)
    generates(contents, written, "wxyzuv")
    assert contents.prompt_of(request("b", "wxyzuv1")) == [["a", 3], ["out:a", 3], ["b", 1]]


def test_no_prompt_goes_on_from_what_two_requests_generated():
    contents = Contents(BLOCK, 8)
    first, other = request("a", "wx"), request("b", "wx")
    for each in (first, other):
        contents.prompt_of(each)
        generates(contents, each, "wxyz")
    with pytest.raises(
        SameTokens, match="the prompt of c begins with tokens that two other requests share"
    ):
        contents.prompt_of(request("c", "wxyz"))


def test_a_hit_on_what_two_requests_had_ends_the_record():
    contents = Contents(BLOCK, 8)
    early, late = request("a", "wx"), request("b", "wxyz")
    contents.prompt_of(early)
    contents.prompt_of(late)
    generates(contents, early, "wxyz")
    contents.check_hit(late, 2)
    with pytest.raises(SameTokens, match="b found tokens that two other requests share"):
        contents.check_hit(late, 4)


def test_what_live_requests_had_is_remembered_and_the_rest_is_bounded():
    contents = Contents(BLOCK, 1)
    contents.prompt_of(request("a", "wx"))
    bound = FACTOR + SPARE
    for number in range(2 * bound):
        name = f"r{number}"
        contents.prompt_of(request(name, f"{number:06}"))
        contents.ended([name])
    assert contents.prompt_of(request("b", "wx")) == [["a", 2]]
    assert len(contents._owner) <= bound
    assert len(contents._segments) <= bound


def test_segments_are_cut_within_one():
    assert cut([["a", 3], ["b", 4]], 5) == [["a", 3], ["b", 2]]
    assert cut([["a", 3], ["b", 4]], 3) == [["a", 3]]
