"""What prompts say that were not the first: what an earlier request said, up to a point."""

from collections.abc import Sequence

from hypothesis import strategies as st

from ...model.pool import Content
from ...model.prefix import prefix
from ...model.scenario import Request


def said_before(
    draw: st.DrawFn,
    earlier: Sequence[Request],
    name: str,
    length: int,
    block: int,
    units: Sequence[int],
    longest: int,
) -> Content:
    """A prompt of about `length` tokens, `longest` at most, that begins as an earlier one.

    The point up to which it does lies where prefix caching decides: at the end of a block or of
    another of the `units`, of the earlier prompt, or of what it generated. A prompt may come again
    as it was, as its whole blocks, or with the answer to it. The rest is stream `name`.
    """
    gone = [one for one in earlier if one.abort_at is not None]
    other = draw(st.sampled_from(gone or earlier)) if draw(st.booleans()) else earlier[-1]
    said = (*other.prompt, (f"out:{other.id}", other.tokens_to_emit))
    whole = other.prompt_len // block * block
    answered = min(other.prompt_len + other.tokens_to_emit, longest)
    again = draw(st.sampled_from((0, 0, other.prompt_len, whole, answered, answered)))
    if again > 0:
        return prefix(said, again)
    unit = draw(st.sampled_from(units))
    common = draw(
        st.one_of(
            st.just(other.prompt_len),
            st.just(length),
            st.integers(1, max(length // unit, 1)).map(lambda count: count * unit),
        )
    )
    shared = prefix(said, min(common, length))
    rest = length - sum(tokens for _, tokens in shared)
    return (*shared, (name, rest)) if rest else shared
