"""Small numbers to reckon with by hand: block 4, chunk 8, states put together from their parts."""

from collections.abc import Sequence as Listed
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from schedproof.model.spyre import forward
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import max_tkv
from schedproof.model.spyre.forward import Forward
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.spyre.revision import Revision
from schedproof.model.spyre.state import Sequence, State

BLOCK = 4
CHUNK = 8
SMALL = {"block_size": BLOCK, "chunk_size": CHUNK, "max_model_len": 64, "max_batch_tkv": 256}

EACH = pytest.mark.parametrize("revision", REVISIONS)
ALL = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)


def only(*names: str) -> pytest.MarkDecorator:
    """The test for these revisions."""
    return pytest.mark.parametrize("revision", [REVISIONS[name] for name in names], ids=names)


def config(**changes: Any) -> SpyreConfig:
    """A configuration in which no limit is near."""
    return SpyreConfig(**({**SMALL, "max_num_seqs": 4} | changes))


def waiting(prompt: int, max_tokens: int = 2, name: str = "new", **changes: Any) -> Sequence:
    """A request that nothing has happened to yet; its tokens are its own."""
    sequence = Sequence(name, prompt, max_tokens, max_tokens, content=((name, prompt),))
    return sequence._replace(**changes)


def decoding(name: str, computed: int, remaining: int, **changes: Any) -> Sequence:
    """A request with a prompt of `computed` that has emitted its first token."""
    prefilled = waiting(computed, remaining + 1, name, computed=computed, generated=1)
    return prefilled._replace(**changes)


def batch(*members: Sequence, **changes: Any) -> State:
    """The state in which `members` run, the tkv that of the last decode step."""
    tkv = max_tkv([sequence.computed for sequence in members if sequence.prefilled], BLOCK)
    return State(running=members, tkv=tkv, runner_tkv=tkv)._replace(**changes)


def ids(members: Listed[Sequence]) -> list[str]:
    """The names, in order."""
    return [sequence.id for sequence in members]


def revision(name: str) -> Revision:
    """A published revision."""
    return REVISIONS[name]


def chunk(
    revision: Revision, state: State, sequence: Sequence, limits: SpyreConfig | None = None
) -> tuple[State, Forward]:
    return forward.compute_chunk(limits or config(), revision, state, sequence)


class Batch(NamedTuple):
    """Tokens of each member of a decode batch."""

    lengths: list[int]
    block: int


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    block = draw(st.sampled_from((1, 2, 3, 4, 64)))
    length = st.integers(1, 8 * block) | st.integers(1, 8).map(lambda blocks: blocks * block)
    return Batch(draw(st.lists(length, min_size=1, max_size=8)), block)
