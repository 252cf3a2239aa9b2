"""What the revisions differ in: how a batch is decided, and how it is booked once it is done."""

from collections.abc import Callable
from typing import NamedTuple

from . import documented, head, throughput
from .config import LlmServingSimConfig
from .state import Decision, Sequence, State


class Revision(NamedTuple):
    """One behaviour.

    `promises`: a request that starts is promised the blocks until its last token.
    `counts_early`: tokens count as computed when their batch is built, not when it is done.
    `prompt_tokens` are those that a completed request of a batch adds to the prompt throughput:
    (the request with them computed, its tokens in the batch) -> tokens.
    """

    schedule: Callable[[LlmServingSimConfig, State], Decision]
    promises: bool
    counts_early: bool
    prompt_tokens: Callable[[Sequence, int], int]


REVISIONS = {
    "documented": Revision(documented.schedule, True, False, throughput.documented),
    "head": Revision(head.schedule, False, True, throughput.head),
}
