"""nano-vLLM's models as `solver.exploration` explores them, one for each pool."""

from collections.abc import Hashable
from typing import Any

from ...model.nano_vllm import scheduler
from ...model.nano_vllm.state import Sequence, State
from ...model.pool import free_blocks
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import CanonicalNames
from ..exploration.models import QueueModels
from ..exploration.undecided import OpenFields, left, outlasts_token
from ..systems import SystemSpace
from .scopes import CHECKUP, SCOPES


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


class NanoModels(QueueModels):
    """The models of one revision in one configuration, for every pool, in ascending order."""

    system = "nano_vllm"
    sequence, open_sequence = Sequence, OpenSequence

    def queued(self, state: State, sequence: Sequence) -> State:
        return scheduler.arrive(state, sequence)

    def quiet(self, state: State) -> bool:
        """Return whether every request decodes, and none begins a block, fills one that others may
        find, or gets its last token."""
        config = self.configs[0]
        block = config["block_size"]
        if state.waiting or len(state.running) > config["max_num_seqs"]:
            return False
        return all(
            sequence.computed % block
            and (sequence.computed + 1) % block
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        return state_key(state, history, self.mentioned)


def state_key(state: State, history: BranchingHistory, mentioned: frozenset[str]) -> Hashable:
    """Equal for states that differ in names only; requests that are `mentioned` in prompts of the
    menu keep theirs."""
    queues = (state.waiting, state.running)
    places = {name: place for place, name in enumerate(history.live)}
    # A request that has arrived since the last step: rules about newcomers go by it.
    queued = (history.last.waiting or ()) if history.last is not None else ()
    newcomers = tuple(one.id not in queued for one in state.waiting)
    names = CanonicalNames(mentioned, queues, history)
    computed = names.computed(history, newest=True)
    return (
        tuple(tuple(_member(one, names, history, places) for one in queue) for queue in queues),
        free_blocks(state.pool),
        names.pool(state.pool),
        computed,
        len(state.aborted),
        newcomers,
    )


def _member(
    one: Sequence, names: CanonicalNames, history: BranchingHistory, places: dict[str, int]
) -> tuple[Any, ...]:
    """What the scheduler goes by, and what the client knows that is no part of it."""
    account = history.live.get(one.id)
    content: Hashable = None
    if isinstance(one, OpenFields):
        content = one.candidates.bits
    client: tuple[Any, ...] = ()
    if account is not None:
        client = (
            account.computed - one.computed,
            account.emitted - one.generated,
            account.prefix_hit - one.prefix_hit,
            account.preemptions > 0,
            account.regenerated,
        )
    return (
        names.request(one.id),
        names.content(one.content) if content is None else content,
        tuple(names.block(block) for block in one.blocks),
        one.computed,
        one.generated,
        one.prefix_hit,
        one.published,
        left(one),
        places.get(one.id),
        client,
    )


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", NanoModels)
