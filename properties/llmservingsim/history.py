"""The features of LLMServingSim's runs: those of vLLM, with a longer memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...model.observation import Step
from ...model.scenario import Request
from ..history.kept_prefixes import KeptPrefixes
from ..history.run_history import RunHistory
from ..vllm.history.features import VllmFeatures
from ..vllm.history.run import Coming, VllmRun, requests_of, state_of
from .prompt_throughput import chunks_after


class LlmServingSimFeatures(VllmFeatures):
    """vLLM's features, but ended requests are remembered, since a witness needs their prompts.

    The rules share vLLM's predicates.
    """

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return how many batches can be in flight once a step is decided, including its own. Up to
        `pp_size` batches stay in flight; the oldest one completes in a step that builds none."""
        return depth(config)

    def may_forget(self, config: Mapping[str, Any]) -> bool:
        return False

    def as_sent(self, config: Mapping[str, Any], request: Request) -> Request:
        """Return the request as the router gets it. A request that another instance decodes ends
        here with its first token."""
        sent = super().as_sent(config, request)
        if config["instances"] == 2:
            return replace(sent, max_tokens=1, output_len=None)
        return replace(sent, tool_steps=request.tool_steps if config["instances"] else 0)

    def of_requests(
        self, config: Mapping[str, Any], requests: Sequence[Request]
    ) -> dict[str, bool]:
        tools = any(request.tool_steps for request in requests)
        return {"tool": tools} if config["instances"] == 1 else {}

    def may_compute_nothing(self, history: RunHistory[Any], step: Step) -> bool:
        return only_tools_run(history)

    def steps_after_end(self, history: RunHistory[Any]) -> int:
        """Return 1 if nothing is left but the step in which the main loop ends the simulation."""
        return int(not history.live and history.config["instances"] > 0)

    def begin(self, history: RunHistory[Any], step: Step) -> None:
        super().begin(history, step)
        if step.prompt_throughput is not None and self.depth(history.config) == 1:
            chunks = chunks_after(history, step)
            history.system_state = state_of(history)._replace(hits_count_with=chunks)

    def decided(self, history: RunHistory[Any], step: Step) -> Mapping[str, Coming]:
        if history.config["instances"]:
            self._pass_time(history, step)
        return super().decided(history, step)

    def _pass_time(self, history: RunHistory[Any], step: Step) -> None:
        """Advance the clock by the duration of a step. If a session's tool has finished, its
        request moves to the end of the order of arrival."""
        live = requests_of(history.live)
        waits = passing(history, step)
        for request in [request for request in live.values() if request.blocked]:
            kept = step.deferred is None or request.id in step.deferred
            request.blocked = max(request.blocked - waits, 0) if kept else 0
            if not request.blocked:
                history.arrives_last(request)
        if step.over and history.kept is not None:
            # The next request begins another simulation.
            history.kept = KeptPrefixes(history.config["block_size"])


def depth(config: Mapping[str, Any]) -> int:
    stages: int = config["pp_size"]
    return stages + 1 if stages > 1 else 1


def only_tools_run(history: VllmRun) -> bool:
    """Return whether every unfinished request waits for a tool."""
    live = history.live.values()
    return bool(live) and all(request.blocked for request in live)


def time_of_idle(history: VllmRun, step: Step) -> int:
    """Return the number of steps by which the clock jumps if only sessions that wait for a tool are
    left. Return 0 in all other cases."""
    if step.scheduled or state_of(history).flights or not only_tools_run(history):
        return 0
    return min(request.blocked for request in history.live.values())


def passing(history: VllmRun, step: Step) -> int:
    """Return the number of steps by which the clock advances.

    In two cases, it is unknown whether the clock jumps to the first session due: nothing can run
    although requests that wait for no tool are left, or a session is aborted inside the step.
    Assume that the clock jumps if the first session due arrives.
    """
    jump = time_of_idle(history, step)
    tools = [request for request in history.live.values() if request.blocked]
    left = [request for request in tools if request.id not in history.aborts_inside]
    if (jump and left == tools) or not left or step.scheduled or state_of(history).flights:
        return jump or 1
    first = min(left, key=lambda request: request.blocked)
    return (jump or 1) if first.id in (step.deferred or ()) else first.blocked


FEATURES = LlmServingSimFeatures()
