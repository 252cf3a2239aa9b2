"""vLLM's models as `scheduling` explores them: one for each pool.

Pools of different sizes have states of their own from the beginning, since the free blocks are part
of a state: they are explored in one go, and never together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...model.systems import full_config
from ...model.vllm import scheduler
from ...model.vllm.model import make_model
from ...model.vllm.state import Sequence as Member
from ...model.vllm.state import State
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import mentioned
from ..exploration.models import Stepped
from ..exploration.scope import AnyItem, menu_of
from ..exploration.undecided import Candidates, ChoiceNeeded, RequestMenu, changed, left
from ..systems import SystemSpace
from .key import Key
from .scopes import CHECKUP, SCOPES
from .undecided import OpenSequence, decided, opened

QUEUES = ("waiting", "running", "parked")


class VllmModels:
    """The models of one revision in one configuration, for every pool of `pools` blocks,
    ascending."""

    system = "vllm"
    limited: frozenset[str] = frozenset()

    def __init__(self, revision: str, config: Mapping[str, Any], pools: Sequence[int]) -> None:
        """Make the models.

        Raises:
            InputError: an impossible configuration.
        """
        each = [{**config, "num_blocks": blocks} for blocks in pools]
        self.configs = [full_config("vllm", revision, one) for one in each]
        self.models = [make_model(revision, one) for one in each]
        asked = [one.config for one in self.models]
        assert not any(one.drafts for one in asked), "no key for drafts"
        self.observes = frozenset(self.models[0].observes)
        one = asked[0]
        self.idle_is_waste = one.depth == 1 and not one.loads
        self.waits_are_bounded = self.idle_is_waste and one.policy == "fcfs"
        self._block: int = self.configs[0]["block_size"]
        self._caches: bool = self.configs[0]["enable_prefix_caching"]
        self._key = Key(self._caches, in_flight=not self.idle_is_waste)

    def menu(self, items: Sequence[AnyItem]) -> RequestMenu:
        """The menu of requests, each a prompt in segments, its max_tokens, its priority, and what a
        connector has of it."""
        menu = menu_of(items, self.models)
        self._key = Key(self._caches, mentioned(menu), in_flight=not self.idle_is_waste)
        return menu

    def initial(self, member: int) -> State:
        """Nothing has arrived."""
        return self.models[member].initial()

    def arrive(self, state: State, request: str, candidates: Candidates) -> State:
        """The state in which a request waits where its priority puts it, whatever the pool."""
        return scheduler.arrive(self.models[0].config, state, opened(request, candidates))

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
        """Between two steps; the size of the pool does not matter for it."""
        return self.models[0].abort(state, request)

    def step(self, member: int, state: State, inside: tuple[str, ...]) -> Stepped:
        """One step in the pool of this number."""
        try:
            after, seen = self.models[member].step(state, inside)
        except ChoiceNeeded:
            raise
        except Exception as error:  # in a model with a fault planted
            return Stepped(None, {}, False, f"{type(error).__name__}: {error}")
        return Stepped(after, seen, False)

    def quiet(self, state: State) -> bool:
        """Every request decodes, and no request begins a block, fills one that others may find, or
        gets its last token."""
        if state.waiting or not self.idle_is_waste:
            return False
        return all(
            one.decodes
            and one.computed % self._block
            and not (self._caches and (one.computed + 1) % self._block == 0)
            and min(left(one)) > 1
            for one in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        """State and history without names."""
        return self._key(state, history)


def _models(
    revision: str, config: Mapping[str, Any], pools: Sequence[int], formula: str | None
) -> VllmModels:
    assert formula is None, "a formula of Spyre"
    return VllmModels(revision, config, pools)


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", _models)
