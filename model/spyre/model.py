"""The reference model of Spyre's scheduler behind the interface that all models share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..pool import blocks_for
from ..reference_model import ReferenceModel
from ..scenario import Request
from ..systems import Reference
from . import scheduler
from .config import SpyreConfig, check_pool, read_config
from .revision import REVISIONS, Revision
from .state import Sequence, State

OBSERVES = (
    "kind",
    "scheduled",
    "emitted",
    "tkv",
    "left_pad_blocks",
    "slot_blocks",
    "waiting",
    "running",
    "prefilling",
    "finished",
    "computed",
    "blocks",
)


@dataclass(frozen=True)
class SpyreModel(ReferenceModel[State]):
    """One configuration of one revision. Every method is pure: states go in and come out."""

    config: SpyreConfig
    revision: Revision
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def options(self) -> dict[str, bool]:
        """Further fields of the step observation, and whether this configuration shows them."""
        return {
            "paused": self.revision.pauses,
            "prefix_hit": self.config.prefix_caching,
            "reserved_blocks": self.revision.reserves_blocks,
            "free_blocks": self.config.num_blocks is not None,
        }

    def refusal(self, request: Request) -> str | None:
        """Why `request` can never run, or None. Source: target protocol, "Refusals at add"."""
        longest = request.prompt_len + request.max_tokens - 1
        sentence = f"prompt + max_tokens - 1 = {longest} tokens"
        if longest > self.config.max_model_len:
            return f"{sentence} is beyond max_model_len ({self.config.max_model_len})"
        if longest > self.config.max_batch_tkv:
            return f"{sentence} is beyond max_batch_tkv ({self.config.max_batch_tkv})"
        needed = blocks_for(longest, self.config.block_size)
        if self.config.num_blocks is not None and needed > self.config.num_blocks:
            return f"{sentence} needs {needed} blocks of {self.config.num_blocks}"
        return None

    def arrive(self, state: State, request: Request) -> State:
        """The request joins the waiting queue."""
        return scheduler.arrive(state, Sequence.of(request))

    def abort(self, state: State, request_id: str) -> State:
        """The client gives the request up before the next decision."""
        return scheduler.abort(self.config, self.revision, state, request_id)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """One decision and its completion: the next state and the step observation."""
        return scheduler.step(self.config, self.revision, state, abort_inside)


def make_model(revision: str, config: Mapping[str, Any]) -> SpyreModel:
    """The model of `revision` in the configuration that `config` gives.

    Raises:
        InputError: an unknown key, or an impossible value.
    """
    read = read_config(config, revision)
    check_pool(read, revision)
    return SpyreModel(read, REVISIONS[revision])


REFERENCE = Reference(read_config, make_model)
