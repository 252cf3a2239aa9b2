"""Spyre's models for `solver.exploration`, one for each limit, and their scopes.

Sizes are the smallest at which every constraint can take effect: a chunk is two blocks of two
tokens, and prompts take up to three chunks.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...model.pool import free_blocks
from ...model.spyre import blocks, release_2_1_2, scheduler
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import SpyreModel, admitting_by, make_model
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import CanonicalNames
from ..exploration.models import QueueModels, Stepped
from ..exploration.scope import MenuItem, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN, OpenFields, outlasts_token, tokens_left
from ..systems import SystemSpace

SMALLEST = {"block_size": 2, "chunk_size": 4, "max_num_seqs": 3, "max_model_len": 16}
EVERY_LENGTH = tuple(lengths(range(1, 10), range(1, 7)))
SOME_LENGTHS = tuple(lengths((1, 3, 4, 7), (1, 3, 6)))
SOME_LIMITS = (8, 12, 16, 20, 28, 40)
# Prompts that share a beginning with the first one, up to a block boundary or not, or that continue
# it or its output.
SHARED = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 2),),
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 8),),
        (("shared", 4), (OWN, 3)),
        (("shared", 4), ("out:r0", 4)),
    )
    for tokens in (1, 4)
)
# For three requests: prompts of one chunk or more.
A_CHUNK_AND_MORE = SHARED[2:]


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of Spyre; its limits are values of max_batch_tkv."""

    system: ClassVar[str] = "spyre"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[MenuItem, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = tuple(range(6, 41))


SCOPES = (
    Scope("lengths", "prompts up to 9, outputs up to 6 tokens", 4),
    Scope("aborts", "with clients that give up", 3, SOME_LENGTHS, SOME_LIMITS, "alone"),
    Scope(
        "uneven",
        "a max_model_len that is not whole blocks",
        3,
        limits=SOME_LIMITS,
        config=(("max_model_len", 15),),
    ),
    Scope(
        "sequential",
        "without interleaving",
        3,
        SOME_LENGTHS,
        SOME_LIMITS,
        config=(("interleave", False),),
    ),
    Scope(
        "pool",
        "a pool of 8 blocks, with clients that give up",
        3,
        SOME_LENGTHS,
        (12, 20, 40),
        "alone",
        (("num_blocks", 8),),
        ("sound", "documented", "2.5.2"),
    ),
    Scope(
        "large pool",
        "a pool that cannot run out",
        2,
        SOME_LENGTHS,
        (12, 20, 40),
        "alone",
        (("num_blocks", 28),),
        ("2.1.2",),
    ),
    Scope(
        "cache",
        "prefix caching: prompts that begin alike",
        3,
        A_CHUNK_AND_MORE,
        (40,),
        "alone",
        (("prefix_caching", True),),
    ),
    Scope(
        "small cache",
        "prefix caching in a pool of 8 blocks",
        3,
        A_CHUNK_AND_MORE,
        (40,),
        config=(("prefix_caching", True), ("num_blocks", 8)),
        revisions=("sound", "documented", "2.5.2"),
    ),
    Scope(
        "no pausing",
        "pausing off",
        3,
        SOME_LENGTHS,
        SOME_LIMITS,
        config=(("pausing", False),),
        revisions=("2.5.2",),
    ),
    Scope(
        "long first",
        "the longest output goes on",
        3,
        limits=SOME_LIMITS,
        config=(("long_output_priority", True),),
        revisions=("2.5.2",),
    ),
)


# The rules whose predicates read max_batch_tkv.
READ_THE_LIMIT = frozenset({"SPY-R07", "SPY-R42", "SPY-R47", "SPY-R51"})


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


class SpyreModels(QueueModels):
    """The models of one revision in one configuration: one model for each limit, smallest first."""

    system = "spyre"
    limit_key = "max_batch_tkv"
    queues = ("waiting", "running", "paused")
    sequence, open_sequence = Sequence, OpenSequence
    limited = READ_THE_LIMIT

    def make_model(
        self, revision: str, config: Mapping[str, Any], formula: str | None
    ) -> SpyreModel:
        """Build one model, whose configuration records whether the limit is read.

        If the pool is unbounded, the model shows no promised blocks: they would mean nothing, and
        to compute them, the model would have to read every length.
        """
        model = make_model(revision, config)
        own = model.revision if formula is None else admitting_by(model.revision, formula)
        assert own is not None, formula
        if model.config.num_blocks is None:
            shows = tuple(name for name in own.shows if name != "reserved_blocks")
            own = replace(own, lost_blocks=blocks.lost_blocks, shows=shows)
        watched: Any = WatchedConfig(model.config)
        return replace(model, revision=own, config=watched)

    def initial(self, member: int) -> State:
        state: State = self.models[0].initial()
        return state

    def queued(self, state: State, sequence: Sequence) -> State:
        return scheduler.arrive(state, sequence)

    def step(self, member: int, state: State, inside: tuple[str, ...]) -> Stepped:
        config = self.models[member].config
        config.limit_read = False
        stepped = super().step(member, state, inside)
        return stepped._replace(limited=config.limit_read or stepped.crash is not None)

    def quiet(self, state: State) -> bool:
        """Return whether the next step only decodes: every request decodes, and none begins a block
        or gets its last token."""
        if state.waiting or state.paused or state.prefilling is not None:
            return False
        block = self.models[0].config.block_size
        return all(
            sequence.computed % block and outlasts_token(sequence) for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        caches = self.configs[0]["prefix_caching"]
        return Key(self.models[0].revision, caches, self.mentioned)(state, history)


class WatchedConfig:
    """A configuration that records whether its limit was read."""

    def __init__(self, config: SpyreConfig) -> None:
        for name in config.__struct_fields__:
            if name != "max_batch_tkv":
                setattr(self, name, getattr(config, name))
        self._limit = config.max_batch_tkv
        self.limit_read = False

    @property
    def max_batch_tkv(self) -> int:
        self.limit_read = True
        return self._limit


class Key:
    """The key of a state in one revision, with or without a prefix cache.

    Without a prefix cache, requests and blocks are only numbers. A decoding request then behaves
    like one whose prompt consists of all tokens computed so far, so only the computed tokens and
    the tokens left to generate count. The order of decoding requests matters only if they may be
    paused, because it breaks ties.

    `mentioned` are the requests whose answers occur in prompts of the menu. These requests keep
    their names.
    """

    def __init__(
        self, revision: Revision, caches: bool, mentioned: frozenset[str] = frozenset()
    ) -> None:
        self._pauses = "paused" in revision.shows
        self._stale = revision.current_tkv is release_2_1_2.current_tkv
        self._caches = caches
        self._mentioned = mentioned

    def __call__(self, state: State, history: BranchingHistory) -> Hashable:
        tkv = (state.tkv, state.runner_tkv) if self._stale else ()
        queues = self._with_contents if self._caches else self._by_length
        return state.last_step_was_prefill, tkv, state.lost_blocks, queues(state, history)

    def _by_length(self, state: State, history: BranchingHistory) -> Hashable:
        decoding = [
            self._decoding(request, history) for request in state.running if request.prefilled
        ]
        if self._pauses:
            decoding.sort(key=lambda member: member[0])  # stable: ties keep their order
        else:
            decoding.sort()
        return (
            tuple(_unstarted(request, history) for request in state.waiting),
            tuple(
                _unstarted(request, history) for request in state.running if not request.prefilled
            ),
            tuple(decoding),
            tuple(self._decoding(request, history) for request in state.paused),
            free_blocks(state.pool),
        )

    def _decoding(self, request: Sequence, history: BranchingHistory) -> tuple[Any, ...]:
        return (
            request.generated if self._pauses else 0,
            request.computed,
            tokens_left(request),
            request.paused_steps,
            len(request.blocks),
            *_as_the_client_sees_it(request, history),
        )

    def _with_contents(self, state: State, history: BranchingHistory) -> Hashable:
        members, pool = (state.waiting, state.running, state.paused), state.pool
        names = CanonicalNames(self._mentioned, members, history)
        queues = tuple(
            tuple((*_content(request, names), *_unstarted(request, history)) for request in queue)
            for queue in members
        )
        fresh = len(pool.head) + (0 if pool.size is None else pool.size + 1 - pool.fresh)
        gone = frozenset(
            (
                names.content(request.content),
                request.computed,
                request.emitted,
                names.request(request.id),
            )
            for request in history.requests.values()
            if request.ended and request.computed
        )
        return queues, fresh, names.pool(pool), gone


def _unstarted(request: Sequence, history: BranchingHistory) -> tuple[Any, ...]:
    if isinstance(request, OpenFields):
        shape: tuple[int, ...] = (request.candidates.bits,)
    else:
        shape = (request.prompt, request.max_tokens, request.output_len)
    return (
        shape,
        request.computed,
        request.generated,
        request.prefix_hit,
        request.paused_steps,
        request.published,
        len(request.blocks),
        *_as_the_client_sees_it(request, history),
    )


def _content(request: Sequence, names: CanonicalNames) -> tuple[Any, ...]:
    content = () if isinstance(request, OpenFields) else names.content(request.content)
    return names.request(request.id), content, tuple(names.block(block) for block in request.blocks)


def _as_the_client_sees_it(request: Sequence, history: BranchingHistory) -> tuple[int, ...]:
    account = history.live.get(request.id)
    if account is None:
        return ()
    return (
        account.computed - request.computed,
        account.emitted - request.generated,
        account.paused_steps - request.paused_steps,
        account.prefix_hit - request.prefix_hit,
        0 if account.emitted else account.prefill_steps,
    )


SPACE = SystemSpace(SCOPES, "max_batch_tkv", "limit", SpyreModels)
