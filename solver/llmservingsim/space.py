"""LLMServingSim's models as `scheduling` explores them: one for each pool.

Their states have vLLM's fields: names are dropped alike, and pools are never explored together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...model.llmservingsim import scheduler
from ...model.llmservingsim.model import make_model
from ...model.llmservingsim.state import Sequence as Member
from ...model.llmservingsim.state import State
from ...model.systems import full_config
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import mentioned
from ..exploration.models import Stepped
from ..exploration.scope import MenuItem, Ranked, menu_of
from ..exploration.undecided import Candidates, ChoiceNeeded, RequestMenu, changed, left
from ..systems import SystemSpace
from ..vllm.key import Key
from .scopes import CHECKUP, SCOPES
from .undecided import OpenSequence, decided, opened

QUEUES = ("waiting", "running")


class LlmServingSimModels:
    """The models of one revision in one configuration, for every pool of `pools` blocks,
    ascending."""

    system = "llmservingsim"
    limited: frozenset[str] = frozenset()
    idle_is_waste = True

    def __init__(self, revision: str, config: Mapping[str, Any], pools: Sequence[int]) -> None:
        """Make the models.

        Raises:
            InputError: an impossible configuration.
        """
        each = [{**config, "num_blocks": blocks} for blocks in pools]
        self.configs = [full_config(self.system, revision, one) for one in each]
        self.models = [make_model(revision, one) for one in each]
        self.observes = frozenset(self.models[0].observes)
        # With chunking off a request that came later may take the blocks that the first in line
        # needs.
        self.waits_are_bounded = self.configs[0]["enable_chunked_prefill"]
        self._config = self.models[0].config
        self._key = Key(self._config.enable_prefix_caching, newest=True)

    def menu(self, items: Sequence[MenuItem | Ranked]) -> RequestMenu:
        """The menu of requests, each a prompt in segments, and its max_tokens."""
        menu = menu_of(items, self.models)
        self._key = Key(self._config.enable_prefix_caching, mentioned(menu), newest=True)
        return menu

    def initial(self, member: int) -> State:
        """Nothing has arrived."""
        return self.models[member].initial()

    def arrive(self, state: State, request: str, candidates: Candidates) -> State:
        """The state in which a request waits behind all others."""
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
        """Every request decodes with a slot and budget, and no request begins a block, fills one
        that others may find, or gets its last token."""
        config, running = self._config, len(state.running)
        if state.waiting or running > config.max_num_batched_tokens:
            return False
        if running and not config.has_slot(running - 1):
            return False
        return all(
            one.decodes
            and one.computed % config.block_size
            and not (config.enable_prefix_caching and (one.computed + 1) % config.block_size == 0)
            and min(left(one)) > 1
            for one in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        """State and history without names."""
        return self._key(state, history)


def _models(
    revision: str, config: Mapping[str, Any], pools: Sequence[int], formula: str | None
) -> LlmServingSimModels:
    assert formula is None, "a formula of Spyre"
    return LlmServingSimModels(revision, config, pools)


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", _models)
