"""Spyre's models as `scheduling` explores them: one for each limit."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...model.spyre import blocks, scheduler
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import SpyreModel, admitting_by, make_model
from ...model.spyre.state import Sequence as Member
from ...model.spyre.state import State
from ...model.systems import full_config
from ..book import Book
from ..models import Stepped
from ..names import mentioned
from ..scope import MenuItem, menu_of
from ..systems import Space
from ..undecided import Candidates, Looked, Menu, changed, left
from .key import Key
from .scopes import CHECKUP, SCOPES
from .undecided import OpenSequence, decided, opened

QUEUES = ("waiting", "running", "paused")
# The rules whose predicates read max_batch_tkv.
READ_THE_LIMIT = frozenset({"SPY-R07", "SPY-R42", "SPY-R47", "SPY-R51"})


class SpyreModels:
    """The models of one revision in one configuration, for every limit of `limits`, ascending."""

    system = "spyre"
    limited = READ_THE_LIMIT
    waits_are_bounded = True
    idle_is_waste = True

    def __init__(
        self,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
        formula: str | None = None,
    ) -> None:
        """Make the models; `formula` admits by that volumetric check.

        Raises:
            InputError: an impossible configuration.
        """
        each = [{**config, "max_batch_tkv": limit} for limit in limits]
        self.configs = [full_config("spyre", revision, one) for one in each]
        self.models = [_explorable(make_model(revision, one), formula) for one in each]
        self._watched: list[Any] = [model.config for model in self.models]
        self.observes = frozenset(self.models[0].observes)
        self._block = self.models[0].config.block_size
        self._caches: bool = self.configs[0]["prefix_caching"]
        self._key = Key(self.models[0].revision, self._caches)

    def menu(self, items: Sequence[MenuItem]) -> Menu:
        """The menu of requests, each a prompt in segments and its max_tokens."""
        menu = menu_of(items, self.models)
        self._key = Key(self.models[0].revision, self._caches, mentioned(menu))
        return menu

    def initial(self, member: int) -> State:
        """Nothing has arrived; the limit does not matter for it."""
        return self.models[0].initial()

    def arrive(self, state: State, request: str, candidates: Candidates) -> State:
        """The state in which a request waits at the end of the queue."""
        return scheduler.arrive(state, opened(request, candidates))

    def narrow(self, state: State, request: str, candidates: Candidates) -> State:
        """The request with these candidates."""

        def change(one: Member) -> Member:
            if not isinstance(one, OpenSequence):
                return one
            return decided(one._replace(content=candidates))

        return changed(state, QUEUES, request, change)

    def end(self, state: State, request: str) -> State:
        """Its next token is its last."""
        return changed(
            state, QUEUES, request, lambda one: one._replace(output_len=one.generated + 1)
        )

    def abort(self, state: State, request: str) -> State:
        """Between two steps; the limit does not matter for it."""
        return self.models[0].abort(state, request)

    def step(self, member: int, state: State, inside: tuple[str, ...]) -> Stepped:
        """One step with the limit of this number."""
        model, config = self.models[member], self._watched[member]
        config.asked = False
        try:
            after, seen = model.step(state, inside)
        except Looked:
            raise
        except Exception as error:  # in a model with a fault planted
            return Stepped(None, {}, True, f"{type(error).__name__}: {error}")
        return Stepped(after, seen, config.asked)

    def quiet(self, state: State) -> bool:
        """Every request decodes, and no request begins a block or gets its last token."""
        if state.waiting or state.paused or state.prefilling is not None:
            return False
        return all(one.computed % self._block and min(left(one)) > 1 for one in state.running)

    def key(self, state: State, book: Book) -> Hashable:
        """State and book without names."""
        return self._key(state, book)


class WatchedConfig:
    """A configuration that notices when its limit is asked for."""

    def __init__(self, config: SpyreConfig) -> None:
        for name in config.__struct_fields__:
            if name != "max_batch_tkv":
                setattr(self, name, getattr(config, name))
        self._limit = config.max_batch_tkv
        self.asked = False

    @property
    def max_batch_tkv(self) -> int:
        """The limit."""
        self.asked = True
        return self._limit


def _explorable(model: SpyreModel, formula: str | None) -> SpyreModel:
    """The model with a configuration that is watched.

    Promises of blocks mean nothing without a bound; to show them, every length would be read.
    """
    revision = model.revision if formula is None else admitting_by(model.revision, formula)
    assert revision is not None, formula
    if model.config.num_blocks is None:
        shows = tuple(name for name in revision.shows if name != "reserved_blocks")
        revision = replace(revision, lost_blocks=blocks.lost_blocks, shows=shows)
    watched: Any = WatchedConfig(model.config)
    return replace(model, revision=revision, config=watched)


SPACE = Space(SCOPES, CHECKUP, "max_batch_tkv", "limit", SpyreModels)
