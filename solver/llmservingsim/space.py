"""LLMServingSim's models as `solver.exploration` explores them, one for each pool.

Their states have the fields of vLLM's, so vLLM's key drops the names. Pools are never explored
together.
"""

from collections.abc import Hashable

from ...model.llmservingsim import scheduler
from ...model.llmservingsim.state import Sequence, State
from ..exploration.branching_history import BranchingHistory
from ..exploration.models import QueueModels
from ..exploration.undecided import OpenFields, outlasts_token
from ..systems import SystemSpace
from ..vllm.key import Key
from .scopes import CHECKUP, SCOPES


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


class LlmServingSimModels(QueueModels):
    """The models of one revision in one configuration, for every pool, in ascending order."""

    system = "llmservingsim"
    sequence, open_sequence = Sequence, OpenSequence

    @property
    def waits_are_bounded(self) -> bool:  # type: ignore[override]
        """With chunking off, a later request may take the blocks that the first in line needs."""
        return bool(self.configs[0]["enable_chunked_prefill"])

    def queued(self, state: State, sequence: Sequence) -> State:
        return scheduler.arrive(state, sequence)

    def quiet(self, state: State) -> bool:
        """Return whether every request decodes with a slot and budget, and none begins a block,
        fills one that others may find, or gets its last token."""
        config, running = self.models[0].config, len(state.running)
        if state.waiting or running > config.max_num_batched_tokens:
            return False
        if running and not config.has_slot(running - 1):
            return False
        block, caches = config.block_size, config.enable_prefix_caching
        return all(
            sequence.decodes
            and sequence.computed % block
            and not (caches and (sequence.computed + 1) % block == 0)
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        caches = self.configs[0]["enable_prefix_caching"]
        return Key(caches, self.mentioned, newest=True)(state, history)


SPACE = SystemSpace(SCOPES, CHECKUP, "num_blocks", "pool", LlmServingSimModels)
