"""Target for LLMServingSim's own scheduler, as a checkout has it.

Runs as a script in an environment with the few packages that the checkout imports (numpy, pyyaml,
rich), and not schedproof; SCHEDPROOF_LLMSERVINGSIM is the folder of the checkout:

    SCHEDPROOF_LLMSERVINGSIM=DIR python gate/targets/llmservingsim_target.py
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import protocol_checks
    from .jsonl import Reply, serve
    from .llmservingsim_engine import Checkout, Engine, load
    from .release_adapter import Hosted, HostedTarget
else:
    import protocol_checks
    from jsonl import Reply, serve
    from llmservingsim_engine import Checkout, Engine, load
    from release_adapter import Hosted, HostedTarget

VARIABLE = "SCHEDPROOF_LLMSERVINGSIM"
KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "max_num_seqs": protocol_checks.COUNT,
    "max_num_batched_tokens": protocol_checks.POSITIVE,
    "long_prefill_token_threshold": protocol_checks.COUNT,
    "enable_chunked_prefill": protocol_checks.FLAG,
    "enable_prefix_caching": protocol_checks.FLAG,
    "prioritize_prefill": protocol_checks.Kind(
        lambda value: value is False, "false: the scheduler has no such option"
    ),
    "pp_size": protocol_checks.Kind(
        lambda value: value == 1 and value is not True, "1: a step completes at once"
    ),
}
FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["computed", "blocks", "prompt_throughput", "decode_throughput"]


class LlmServingSimTarget(HostedTarget):
    """The five operations on one checkout, which is imported by the first start."""

    def __init__(self) -> None:
        super().__init__()
        self._checkout: Checkout | None = None

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        """A scheduler of its own; raises RefusedError."""
        protocol_checks.check_system(system, "llmservingsim")
        protocol_checks.check_keys(config, KEYS)
        if self._checkout is None:
            folder = os.environ.get(VARIABLE)
            if not folder:
                raise protocol_checks.RefusedError(
                    f"{VARIABLE} is not set; valid is a checkout's folder"
                )
            self._checkout = load(folder)
        fields = [*FIELDS]
        fields += ["prefix_hit"] if config["enable_prefix_caching"] else []
        fields += ["free_blocks"] if config["num_blocks"] is not None else []
        engine = Engine(self._checkout, config)
        return Hosted(engine, "llmservingsim", self._checkout.version, fields)

    def admit(self, engine: Engine, asked: protocol_checks.CheckedRequest) -> None:
        """Queue a request; the simulator refuses none."""
        engine.add(asked)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """The simulator's clients do not give up."""
        self._started()
        message = "LLMServingSim has no aborts"
        return {"ok": False, "error": "unsupported", "message": message}

    def advance(self, engine: Engine) -> dict[str, Any]:
        """One decision, and its batch is through the pipeline."""
        before = {request.id: request.num_preemptions for request in engine.scheduler.running}
        batch = engine.schedule()
        requests = [] if batch is None else batch.requests
        tokens = {} if batch is None else batch.scheduled_tokens
        reached = {request.id: request.num_tokens_reached for request in requests}
        # The tokens of the batch count as computed since it was built.
        start = {
            request.id: request.num_computed_tokens - tokens[request.id] for request in requests
        }
        decodes = {decodes_at(request, start[request.id]) for request in requests}
        preempted = [
            engine.name(one)
            for one in engine.scheduler.waiting
            if one.num_preemptions > before.get(one.id, one.num_preemptions)
        ]
        prompts, generated, finished = (0, 0, []) if batch is None else engine.complete(batch)
        return {
            "kind": kind_of(decodes),
            "scheduled": {engine.name(one): tokens[one.id] for one in requests},
            "emitted": {
                engine.name(one): one.num_tokens_reached - reached[one.id]
                for one in requests
                if one.num_tokens_reached > reached[one.id]
            },
            "preempted": preempted,
            "finished": {engine.name(one): reason(engine, one) for one in finished},
            "prompt_throughput": prompts,
            "decode_throughput": generated,
            **seen_after(engine),
        }


def seen_after(engine: Engine) -> dict[str, Any]:
    """What the scheduler holds once the step is over."""
    running, waiting = engine.scheduler.running, engine.scheduler.waiting
    seen: dict[str, Any] = {
        "waiting": [engine.name(one) for one in waiting],
        "running": [engine.name(one) for one in running],
        "prefilling": [
            engine.name(one) for one in running if not decodes_at(one, one.num_computed_tokens)
        ],
        "computed": {
            engine.name(one): one.num_computed_tokens
            for one in (*running, *waiting)
            if one.num_computed_tokens
        },
        "blocks": dict(engine.blocks()),
    }
    if engine.config["enable_prefix_caching"]:
        # A request that waits was looked up as well, and may find something else next time.
        seen["prefix_hit"] = {engine.name(one): one.npu_cache_hit for one in running}
    if engine.config["num_blocks"] is not None:
        seen["free_blocks"] = int(engine.pool.get_num_free_blocks())
    return seen


def decodes_at(request: Any, computed: int) -> bool:
    """With so many tokens computed, just its last generated token is left."""
    generated: int = request.num_tokens_reached - request.original_input
    return generated > 0 and request.num_tokens_reached - computed == 1


def kind_of(decodes: set[bool]) -> str:
    """Whether requests that compute decode, prefill, or some the one and some the other."""
    if not decodes:
        return "idle"
    if len(decodes) == 2:
        return "mixed"
    return "decode" if True in decodes else "prefill"


def reason(engine: Engine, request: Any) -> str:
    """Why it has finished: the simulator knows lengths only."""
    return "eos" if engine.outputs[request.id].ends_with_eos else "length"


if __name__ == "__main__":
    serve(LlmServingSimTarget())
