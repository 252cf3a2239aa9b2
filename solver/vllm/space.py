"""vLLM's models as `solver.exploration` explores them, one for each pool.

The free blocks are part of a state, so pools of different sizes never share a state: one
exploration covers them all, and they are never stepped together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...model.vllm import scheduler
from ...model.vllm import state as model_state
from ...model.vllm.state import State
from ..exploration.branching_history import BranchingHistory
from ..exploration.models import QueueModels
from ..exploration.undecided import Candidates, OpenFields, outlasts_token
from ..systems import SystemSpace
from .key import Key
from .scopes import CHECKUP, SCOPES


class OpenSequence(OpenFields, model_state.Sequence, frozen=True):
    """A request that is not fully decided; its priority and its load are."""

    kept_output_len = model_state.Sequence.output_len
    kept_content = model_state.Sequence.content


class VllmModels(QueueModels):
    """The models of one revision in one configuration, for every pool, in ascending order."""

    system = "vllm"
    queues = ("waiting", "running", "parked")
    sequence, open_sequence = model_state.Sequence, OpenSequence

    def __init__(
        self,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
        formula: str | None = None,
    ) -> None:
        super().__init__(revision, config, limits, formula)
        assert not any(model.config.drafts for model in self.models), "the key has no drafts"
        first = self.models[0].config
        self.idle_is_waste = first.depth == 1 and not first.loads
        self.waits_are_bounded = self.idle_is_waste and first.policy == "fcfs"

    def opened(self, request: str, candidates: Candidates) -> Any:
        """Return a new sequence; all candidates have one priority and one load."""
        assert candidates.priority is not None, request
        assert candidates.external_tokens is not None, request
        assert candidates.load_steps is not None, request
        content: Any = candidates
        return self.decided(
            OpenSequence(
                *(request, 0, 0, 0),
                priority=candidates.priority,
                content=content,
                external=candidates.external_tokens,
                load_steps=candidates.load_steps,
            )
        )

    def queued(self, state: State, sequence: model_state.Sequence) -> State:
        """Return the state in which it waits where its priority puts it."""
        return scheduler.arrive(self.models[0].config, state, sequence)

    def quiet(self, state: State) -> bool:
        """Return whether every request decodes, and none begins a block, fills one that others may
        find, or gets its last token."""
        if state.waiting or not self.idle_is_waste:
            return False
        config = self.configs[0]
        block, caches = config["block_size"], config["enable_prefix_caching"]
        return all(
            sequence.decodes
            and sequence.computed % block
            and not (caches and (sequence.computed + 1) % block == 0)
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        caches = self.configs[0]["enable_prefix_caching"]
        return Key(caches, self.mentioned, in_flight=not self.idle_is_waste)(state, history)


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", VllmModels)
