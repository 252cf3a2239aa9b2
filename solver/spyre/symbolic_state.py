"""Symbols for everything that a step of the scheduler reads besides the lengths of its requests. A
value leads to separate paths only if the code reads it."""

from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any, NamedTuple, cast

from ...model import allocator, members, pool, sequence
from ...model.pool import Pool
from ...model.spyre import (
    blocks,
    documented,
    forward,
    peak,
    release_2_1_2,
    release_2_5_2,
    scheduler,
    sound,
    state,
    volumetric,
)
from ...model.spyre import model as model_of
from ...model.spyre.config import SpyreConfig
from ...model.spyre.forward import Forward
from ...model.spyre.revision import Revision
from ...model.spyre.state import Decision, State
from ...model.spyre.state import Sequence as Request
from ..smt.execution import (
    Queue,
    SymbolicLength,
    SymbolicRun,
    UndecidedError,
    count_as_more,
)
from ..smt.passed_on import Name
from ..smt.terms import boolean, integer

# The modules that a step runs.
MODULES: tuple[ModuleType, ...] = (
    *(allocator, blocks, documented, forward, members, model_of, peak, pool, release_2_1_2),
    *(release_2_5_2, scheduler, sequence, sound, state, volumetric),
)
# The fields that the proof sets. A new field could be a place where the code remembers an earlier
# answer.
KNOWN = {
    Request: (
        *("id", "prompt", "max_tokens", "output_len", "content", "computed", "generated"),
        *("prefix_hit", "blocks", "published", "paused_steps"),
    ),
    State: (
        *("waiting", "running", "paused", "last_step_was_prefill", "tkv", "runner_tkv"),
        *("pool", "lost_blocks", "aborted"),
    ),
    SpyreConfig: (
        *("block_size", "chunk_size", "max_num_seqs", "max_model_len", "max_batch_tkv"),
        *("interleave", "prefix_caching", "num_blocks", "pausing", "long_output_priority"),
    ),
}
SWITCHES = ("interleave", "pausing")  # have both values, unless a lemma fixes one


class StepConfiguration(NamedTuple):
    """The configuration of a step. With `bounded`, the pool may have no room for a prompt."""

    revision: Revision
    interleave: bool = True
    block: int = 64
    chunk: int = 512
    bounded: bool = False

    @property
    def remembers(self) -> bool:
        """Whether admission uses the tkv that the last forward pass reported."""
        return self.revision.current_tkv is release_2_1_2.current_tkv

    @property
    def asks_once(self) -> bool:
        """Whether only the first chunk must meet the last-chunk constraints."""
        at_first = self.revision.is_held_to_last_chunk is release_2_1_2.is_held_to_last_chunk
        return at_first and not self.interleave

    @property
    def pauses(self) -> bool:
        return "paused" in self.revision.shows


class Lengths(NamedTuple):
    """The lengths of a symbolic request, in tokens. The request generates `ends` tokens. `hit` is
    the number of blocks in its prefix hit."""

    prompt: Any
    tokens: Any
    ends: Any
    generated: Any
    computed: Any
    hit: Any
    hit_tokens: Any


class Call(NamedTuple):
    """A call to the volumetric check: its arguments and its answer."""

    members: list[Any]
    newcomer: Any
    block: Any
    limit: Any
    tkv: Any
    answer: Any


class Stepped(NamedTuple):
    """A state before and after a step, on one path."""

    before: State
    after: State
    decision: Decision
    computed: Forward
    calls: list[Call]
    aborted: tuple[str, ...]
    # the batches compared with the limit, and whether each is within it
    compared: list[tuple[list[Request], Any]]
    # the lengths whose largest tkv the step has computed, and that tkv
    tkvs: list[tuple[list[Any], Any]]


def keeps_lengths(request: Request, of: Lengths) -> Iterator[Any]:
    """Yield the claims that a request still has these lengths."""
    yield request.prompt == of.prompt
    yield request.max_tokens == of.tokens
    yield request.output_len == of.ends
    yield request.prefix_hit == of.hit_tokens


def check_fields() -> None:
    """Refuse a model whose requests, states or configuration have fields that the proof does not
    set.

    Raises:
        UndecidedError: there is such a field.
    """
    for kind, fields in KNOWN.items():
        if kind.__struct_fields__ != fields:
            raise UndecidedError(
                f"has fields that the proof does not set, or lacks some: {kind.__name__} must have "
                f"exactly {', '.join(fields)}"
            )


class Several(Request, frozen=True):
    """A request that represents several requests in a queue; loops visit it only once."""

    counts_more: Any = 0


def any_request(run: SymbolicRun, name: str, **lengths: Any) -> Request:
    """Return a request with the given lengths. Its other lengths may be any numbers."""
    names = ("max_tokens", "output_len", "generated", "prefix_hit", "published", "paused_steps")
    others = {field: run.number(integer(f"{field} of {name}")) for field in names}
    unread: Any = Unread()
    return Request(Name(name), content=unread, blocks=unread, **(others | lengths))


def several(request: Request, more: Any) -> Several:
    fields = {
        name: count_as_more(getattr(request, name), more) for name in request.__struct_fields__
    }
    return Several(**(fields | {"id": several_names(request.id, more)}), counts_more=more)


def several_names(name: str, more: Any) -> Name:
    made: Any = Name(str.__str__(name))
    made.counts_more = more
    return cast(Name, made)


class SymbolicConfig:
    """A configuration whose settings are decided when the code reads them. Switches that are not in
    `free` are fixed."""

    def __init__(
        self, run: SymbolicRun, settings: SpyreConfig, blocks: Any, free: Collection[str] = SWITCHES
    ) -> None:
        self._run, self._settings, self._blocks, self._free = run, settings, blocks, free

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settings, name)

    @property
    def num_blocks(self) -> Any:
        return self._run.number(self._blocks) if self._is("pool is bounded") else None

    @property
    def prefix_caching(self) -> bool:
        return self._is("prefix caching")

    @property
    def interleave(self) -> bool:
        free = "interleave" in self._free
        return self._is("interleaving") if free else self._settings.interleave

    @property
    def pausing(self) -> bool:
        return self._is("pausing") if "pausing" in self._free else self._settings.pausing

    @property
    def long_output_priority(self) -> bool:
        return self._is("long outputs first")

    def _is(self, switch: str) -> bool:
        return self._run.answer(boolean(switch))


def any_config(run: SymbolicRun, block: Any, limit: Any) -> SymbolicConfig:
    """Return a configuration with this block size and limit, whose other values may be anything."""
    names = ("chunk_size", "max_num_seqs", "max_model_len")
    others = {name: run.number(integer(name)) for name in names}
    settings = SpyreConfig(block_size=block, max_batch_tkv=run.number(limit), **others)
    return SymbolicConfig(run, settings, integer("num_blocks"))


def any_rest(run: SymbolicRun) -> dict[str, Any]:
    """Return arbitrary values for the fields of a state that hold neither requests nor blocks.

    Raise UndecidedError as `check_fields` does.
    """
    check_fields()
    numbers = {
        name: run.number(integer(f"{name} before")) for name in ("tkv", "runner_tkv", "lost_blocks")
    }
    reported: Any = run.number(integer("aborts to report"))
    gone = Queue([several_names("gone", reported - 1)], reported)
    was_prefill = run.truth(boolean("was prefill"))
    return {**numbers, "last_step_was_prefill": was_prefill, "aborted": gone}


class Held(SymbolicLength):
    """The blocks of a request. Only their number is known, and a decode step can read it only if
    `counts` is set."""

    counts = False

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, at: Any) -> Any:
        return Unread()


class OnlyVisited:
    """A sequence that the code may only iterate over. Anything else, such as `len`, raises an
    exception."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __bool__(self) -> bool:
        raise TypeError("the step asks whether there are any aborts within it")


class Unread:
    """The content of a prompt, or the number of a block. A step must not read either, because the
    proof does not model them."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("the step reads the content of a prompt, or the number of a block")

    def __eq__(self, other: object) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return str(bool(self))


class AnyPool(Pool):
    """A pool. Only the lengths of its three lists of free blocks are known."""

    run: SymbolicRun

    @classmethod
    def of(cls, run: SymbolicRun) -> "AnyPool":
        free = (run.number(integer(f"{name} blocks")) for name in ("head", "fresh", "tail"))
        head, fresh, tail = free
        pool = cls(
            *(None, cast(Any, SymbolicLength(head)), fresh, cast(Any, SymbolicLength(tail))),
            cast(Any, Unread()),
        )
        pool.run = run
        return pool

    @property
    def size(self) -> Any:
        bounded = self.run.answer(boolean("pool is bounded"))
        return self.run.number(integer("blocks of the pool")) if bounded else None
