"""The reference models of LLMServingSim's scheduler, with the interface that all models share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..pool import blocks_for
from ..scenario import Request
from ..systems import Reference, ReferenceModel
from . import documented, head, main_loop, scheduler
from .config import LlmServingSimConfig, read_config
from .state import Revision, Sequence, State

OBSERVES = (
    *("kind", "scheduled", "emitted", "waiting", "running", "prefilling", "preempted"),
    *("finished", "blocks", "prompt_throughput", "decode_throughput"),
)

REVISIONS = {
    "documented": Revision(documented.schedule, True, False, documented.prompt_tokens),
    "head": Revision(head.schedule, False, True, head.prompt_tokens),
}


@dataclass(frozen=True)
class LlmServingSimModel(ReferenceModel[State]):
    """LLMServingSim in one configuration of one revision."""

    config: LlmServingSimConfig
    revision: Revision
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def options(self) -> dict[str, bool]:
        bounded = self.config.num_blocks is not None
        return {
            **dict.fromkeys(("deferred", "over"), bool(self.config.instances)),
            "handed_over": self.config.instances == 2,
            "computed": scheduler.shows_computed(self.config, self.revision),
            "prefix_hit": self.config.enable_prefix_caching,
            "free_blocks": bounded,
            "reserved_blocks": bounded and self.revision.promises,
        }

    def refusal(self, request: Request) -> str | None:
        """Return why `request` can never run, or None if it can (ALL-R12)."""
        config = self.config
        if request.tool_steps and config.instances != 1:
            return "tool_steps needs instances 1"
        longest = request.prompt_len + request.max_tokens - 1
        sentence = f"prompt + max_tokens - 1 = {longest} tokens"
        needed = blocks_for(longest, config.block_size)
        if config.num_blocks is not None and needed > config.num_blocks:
            return f"{sentence} needs {needed} blocks, but the pool has {config.num_blocks}"
        # After a preemption, the whole request is computed again, including its output.
        if not config.enable_chunked_prefill and config.capped(longest) > (
            config.max_num_batched_tokens
        ):
            return (
                f"{sentence} exceeds max_num_batched_tokens ({config.max_num_batched_tokens}), "
                "and prompts are not chunked"
            )
        return None

    def arrive(self, state: State, request: Request) -> State:
        return main_loop.arrive(state, Sequence.of(request), request.tool_steps)

    def abort(self, state: State, request_id: str) -> State:
        return scheduler.abort(self.config, state, request_id)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """Make one decision and complete it (ALL-R07)."""
        if self.config.instances:
            return main_loop.step(self.revision, self.config, state, abort_inside)
        return scheduler.step(self.revision, self.config, state, abort_inside)


def make_model(revision: str, config: Mapping[str, Any]) -> LlmServingSimModel:
    return LlmServingSimModel(read_config(config, revision), REVISIONS[revision])


REFERENCE = Reference(read_config, make_model)
