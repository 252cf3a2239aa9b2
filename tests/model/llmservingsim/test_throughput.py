"""What one request of a batch adds to the prompt throughput."""

import pytest

from schedproof.model.llmservingsim import throughput

from .build import waiting


@pytest.mark.parametrize(("tokens", "counted"), [(1, 0), (2, 2), (3, 3)])
def test_at_head_a_chunk_counts_from_two_tokens_on(tokens: int, counted: int) -> None:
    one = waiting(9, computed=8, prefix_hit=4)
    assert throughput.head(one, tokens) == counted
    # The last one counts whatever its length, with what was cached.
    assert throughput.head(one._replace(computed=9), tokens) == tokens + 4


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_by_the_page_a_chunk_of_any_length_counts(tokens: int) -> None:
    one = waiting(9, computed=8, prefix_hit=4)
    assert throughput.documented(one, tokens) == tokens
    assert throughput.documented(one._replace(computed=9), tokens) == tokens + 4
    assert throughput.documented(one._replace(computed=9, generated=1), tokens) == 0
