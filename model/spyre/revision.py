"""A revision of Spyre's scheduler: the functions in which revisions differ."""

from collections.abc import Callable
from collections.abc import Sequence as Members
from dataclasses import dataclass

from ..pool import Content, Pool
from .config import SpyreConfig
from .state import Decision, Sequence, State
from .volumetric import Check

Freed = list[tuple[int, Content | None]]


@dataclass(frozen=True, slots=True)
class Revision:
    """The functions that make the decisions of one published behaviour.

    `documented.DOCUMENTED` contains the functions of the scheduling page; every other revision
    replaces some of them (`sound`, `release_2_1_2`, `release_2_5_2`). To undo a single difference,
    restore the page's function: `replace(RELEASE_2_5_2, candidate=documented.candidate)`.

    A function that calls other functions of the revision takes the revision as its second
    parameter.

    Attributes:
        name: as in the scenario format.
        decide: returns the decision of a step, and the state in which it is made.
        candidate: the request whose prefill chunk runs in this step, or None.
        is_empty: whether no request is admitted; the first in line then starts without a check.
        is_held_to_last_chunk: whether the last-chunk constraints apply to a request now.
        satisfies_last_chunk: whether a request meets these constraints.
        fits_model_length: the max-model-length constraint; takes (configuration, tkv of the batch,
            decoding requests, newcomer).
        volume_check: the volumetric constraint.
        current_tkv: the max-tkv that admission uses.
        tkv_after_chunk: the tkv that a prefill step reports; takes (configuration, state before,
            request before, running requests after).
        progress: how many tokens count as computed after a chunk, and how many then have a block;
            takes (configuration, request, end of its chunk).
        fits_pool: whether the blocks that are free and not promised suffice for all tokens of a
            newcomer.
        blocks_at_end: blocks promised to a request when it starts.
        lost_blocks: the number of blocks that stay promised to an aborted request; takes
            (configuration, revision, request, whether it is aborted inside a step).
        give_back: the pool with freed blocks, in the order in which they are handed out again.
        shows: the fields of the step observation that this revision shows, unlike some others.
    """

    name: str
    decide: Callable[[SpyreConfig, "Revision", State], tuple[State, Decision]]
    candidate: Callable[[SpyreConfig, "Revision", State], Sequence | None]
    is_empty: Callable[[State], bool]
    is_held_to_last_chunk: Callable[[SpyreConfig, State, Sequence], bool]
    satisfies_last_chunk: Callable[[SpyreConfig, "Revision", State, Sequence], bool]
    fits_model_length: Callable[[SpyreConfig, int, Members[Sequence], Sequence], bool]
    volume_check: Check
    current_tkv: Callable[[SpyreConfig, State], int]
    tkv_after_chunk: Callable[[SpyreConfig, State, Sequence, tuple[Sequence, ...]], int]
    progress: Callable[[SpyreConfig, Sequence, int], tuple[int, int]]
    fits_pool: Callable[[SpyreConfig, "Revision", State, Sequence], bool]
    blocks_at_end: Callable[[SpyreConfig, Sequence], int]
    lost_blocks: Callable[[SpyreConfig, "Revision", Sequence, bool], int]
    give_back: Callable[[Pool, Freed], Pool]
    shows: tuple[str, ...] = ()
