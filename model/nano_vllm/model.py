"""The reference models of nano-vLLM's scheduler behind the interface that all models share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..pool import blocks_for
from ..reference_model import ReferenceModel
from ..scenario import Request
from ..systems import Reference
from . import scheduler
from .config import NanoConfig, read_config
from .state import Sequence, State

OBSERVES = (
    "kind",
    "scheduled",
    "emitted",
    "waiting",
    "running",
    "prefilling",
    "preempted",
    "finished",
    "computed",
    "prefix_hit",
    "blocks",
    "free_blocks",
    "slot_blocks",
)


@dataclass(frozen=True)
class NanoModel(ReferenceModel[State]):
    """One revision in one configuration. Every method is pure: states go in and come out.

    `chunked`: the first sequence of a step may be prefilled in part, as from release 0.2.0.
    """

    config: NanoConfig
    chunked: bool
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def refusal(self, request: Request) -> str | None:
        """Why `request` can never run, or None. Source: target protocol, "Refusals at add"."""
        config = self.config
        longest = request.prompt_len + request.max_tokens - 1
        needed = blocks_for(longest, config.block_size)
        sentence = f"prompt + max_tokens - 1 = {longest} tokens"
        if needed > config.num_blocks:
            return f"{sentence} needs {needed} blocks of {config.num_blocks}"
        if not self.chunked and longest > config.max_num_batched_tokens:
            # Preempted, it would have to be prefilled whole with what it has generated.
            return (
                f"{sentence} is beyond max_num_batched_tokens ({config.max_num_batched_tokens}), "
                "and prompts are not chunked"
            )
        return None

    def arrive(self, state: State, request: Request) -> State:
        """The request joins the waiting queue."""
        return scheduler.arrive(state, Sequence.of(request))

    def abort(self, state: State, request_id: str) -> State:
        """The client gives the request up before the next decision."""
        return scheduler.abort(self.config, state, request_id)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """One decision and its completion: the next state and the step observation."""
        return scheduler.step(self.config, state, self.chunked, abort_inside)


def make_model(revision: str, config: Mapping[str, Any]) -> NanoModel:
    """The model of a revision in the configuration that `config` gives.

    Raises:
        InputError: an unknown key, or an impossible value.
    """
    return NanoModel(read_config(config, revision), chunked=revision != "documented")


REFERENCE = Reference(read_config, make_model)
