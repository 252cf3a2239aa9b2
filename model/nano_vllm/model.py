"""The reference models of nano-vLLM's scheduler, with the interface that all models share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ..pool import blocks_for
from ..scenario import Request
from ..systems import Reference, ReferenceModel
from . import documented, release_0_2_0, scheduler
from .config import NanoConfig, read_config
from .state import Plan, Sequence, State

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


class Revision(Protocol):
    """The functions in which revisions differ; each revision is a module."""

    def schedule(self, config: NanoConfig, state: State) -> Plan:
        """Decide the next step."""

    def longest_prefill(self, config: NanoConfig) -> int | None:
        """Return the maximum number of tokens of a sequence, or None if there is no limit."""


REVISIONS: Mapping[str, Revision] = {"documented": documented, "0.2.0": release_0_2_0}


@dataclass(frozen=True)
class NanoModel(ReferenceModel[State]):
    """nano-vLLM in one configuration of one revision."""

    config: NanoConfig
    revision: str
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def refusal(self, request: Request) -> str | None:
        """Return why `request` can never run, or None if it can (ALL-R12)."""
        config = self.config
        longest = request.prompt_len + request.max_tokens - 1
        needed = blocks_for(longest, config.block_size)
        sentence = f"prompt + max_tokens - 1 = {longest} tokens"
        if needed > config.num_blocks:
            return f"{sentence} needs {needed} blocks, but the pool has {config.num_blocks}"
        bound = REVISIONS[self.revision].longest_prefill(config)
        if bound is not None and longest > bound:
            return (
                f"{sentence} exceeds max_num_batched_tokens ({bound}), and prompts are not chunked"
            )
        return None

    def arrive(self, state: State, request: Request) -> State:
        return scheduler.arrive(state, Sequence.of(request))

    def abort(self, state: State, request_id: str) -> State:
        return scheduler.abort(self.config, state, request_id)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """Make one decision and complete it (ALL-R07)."""
        schedule = REVISIONS[self.revision].schedule
        return scheduler.step(self.config, state, schedule, abort_inside)


def make_model(revision: str, config: Mapping[str, Any]) -> NanoModel:
    return NanoModel(read_config(config, revision), revision)


REFERENCE = Reference(read_config, make_model)
