"""nano-vLLM's models as `scheduling` explores them: one for each pool."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...model.nano_vllm import scheduler
from ...model.nano_vllm.model import make_model
from ...model.nano_vllm.state import Sequence as Member
from ...model.nano_vllm.state import State
from ...model.systems import full_config
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import mentioned
from ..exploration.models import Stepped
from ..exploration.scope import MenuItem, Ranked, menu_of
from ..exploration.undecided import Candidates, ChoiceNeeded, RequestMenu, changed, left
from ..systems import SystemSpace
from .key import key
from .scopes import CHECKUP, SCOPES
from .undecided import OpenSequence, decided, opened

QUEUES = ("waiting", "running")


class NanoModels:
    """The models of one revision in one configuration, for every pool of `pools` blocks,
    ascending."""

    system = "nano_vllm"
    limited: frozenset[str] = frozenset()
    waits_are_bounded = True
    idle_is_waste = True

    def __init__(self, revision: str, config: Mapping[str, Any], pools: Sequence[int]) -> None:
        """Make the models.

        Raises:
            InputError: an impossible configuration.
        """
        each = [{**config, "num_blocks": blocks} for blocks in pools]
        self.configs = [full_config("nano_vllm", revision, one) for one in each]
        self.models = [make_model(revision, one) for one in each]
        self.observes = frozenset(self.models[0].observes)
        self._block: int = self.configs[0]["block_size"]
        self._seats: int = self.configs[0]["max_num_seqs"]
        self._mentioned: frozenset[str] = frozenset()

    def menu(self, items: Sequence[MenuItem | Ranked]) -> RequestMenu:
        """The menu of requests, each a prompt in segments and its max_tokens."""
        menu = menu_of(items, self.models)
        self._mentioned = mentioned(menu)
        return menu

    def initial(self, member: int) -> State:
        """Nothing has arrived."""
        return self.models[member].initial()

    def arrive(self, state: State, request: str, candidates: Candidates) -> State:
        """The state in which a request waits at the end of the queue."""
        return scheduler.arrive(state, opened(request, candidates))

    def narrow(self, state: State, request: str, candidates: Candidates) -> State:
        """The sequence with these candidates."""

        def change(one: Member) -> Member:
            if not isinstance(one, OpenSequence):
                return one
            return decided(one._replace(content=candidates))

        return changed(state, QUEUES, request, change)

    def end(self, state: State, request: str) -> State:
        """Its next token is its last."""

        def change(one: Member) -> Member:
            return one._replace(output_len=one.generated + 1)

        return changed(state, QUEUES, request, change)

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
        if state.waiting or len(state.running) > self._seats:
            return False
        return all(
            one.computed % self._block and (one.computed + 1) % self._block and min(left(one)) > 1
            for one in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        """State and history without names."""
        return key(state, history, self._mentioned)


def _models(
    revision: str, config: Mapping[str, Any], pools: Sequence[int], formula: str | None
) -> NanoModels:
    assert formula is None, "a formula of Spyre"
    return NanoModels(revision, config, pools)


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", _models)
