"""Target for LLMServingSim's own scheduler and memory model, without the simulator.

The checkout's unmodified code decides, allocates, caches and counts. It even derives the size of
the pool from the memory of the accelerator. There are two generations of the code:

- The newer one has a block pool.
- Releases 1.0.0 and 1.1.0 have one queue of requests, and a radix tree as their prefix cache.
  LLMServingSim's page on continuous batching describes them. The pool is the memory that the
  model's weights leave free, and its blocks have no numbers. Requests that the scheduler evicts
  move to the host, which has room for all of them. They do not count as preempted, because they
  keep their computed tokens.

With several pipeline stages (`pp_size`), batches stay in flight. In a step in which the scheduler
builds no batch, the oldest batch in flight completes.

With `instances`, the scheduler runs inside the simulator's own main loop and router; see
`main_loop`.

Source: serving/core/scheduler.py of the checkout, inference_serving/scheduler.py of 1.0.0.

Needs the few packages that the checkout imports (numpy, pyyaml, rich):

    SCHEDPROOF_LLMSERVINGSIM=DIR python gate/targets/run_adapter.py llmservingsim
"""

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

from .. import coverage, protocol_checks
from ..jsonl import Reply, serve
from ..protocol_checks import CheckedRequest, Output, RefusedError, refuse
from ..release_adapter import Hosted, HostedTarget, kind_of
from .checkout import GIB, MODEL, NPU, PACKAGES, Checkout, build, load
from .main_loop import MainLoop

VARIABLE = "SCHEDPROOF_LLMSERVINGSIM"
KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "max_num_seqs": protocol_checks.COUNT,
    "max_num_batched_tokens": protocol_checks.POSITIVE,
    "long_prefill_token_threshold": protocol_checks.COUNT,
    "enable_chunked_prefill": protocol_checks.FLAG,
    "enable_prefix_caching": protocol_checks.FLAG,
    "prioritize_prefill": protocol_checks.FLAG,
    "pp_size": protocol_checks.POSITIVE,
    "instances": protocol_checks.Kind(
        lambda value: type(value) is int and value in (0, 1, 2), "0, 1 or 2"
    ),
}
FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["prompt_throughput", "decode_throughput"]
NEVER = -1  # stands for a time that is not known yet
PLENTY = 20_000  # blocks of an effectively unbounded pool; building it takes 20 ms
ROOMY = 10**9  # likewise without numbered blocks; also the size of the host's memory


class Engine:
    """A new scheduler of the checkout for one configuration. The code may be of either generation.

    When the main loop has ended a simulation, the next request starts another one, with an empty
    memory.
    """

    def __init__(self, checkout: Checkout, config: Mapping[str, Any]) -> None:
        if config["instances"] and not checkout.has_router:
            raise refuse("instances", config["instances"], "0: the release has no such router")
        self.checkout, self.config = checkout, config
        self.loop: MainLoop | None = None
        self.decoders: list[Any] = []
        self.begin()
        if self.scheduler.max_num_batched_tokens != config["max_num_batched_tokens"]:
            self.close()
            raise refuse(
                "max_num_batched_tokens",
                config["max_num_batched_tokens"],
                f"at most {self.scheduler.max_num_batched_tokens}, the longest context of {MODEL}",
            )

    def begin(self) -> None:
        instances = self.config["instances"]
        self.scheduler = self.build("prefill" if instances == 2 else None)
        self.outputs: dict[int, Output] = {}
        self.time = 0  # in steps
        self.flights: list[Any] = []  # batches that have not completed, the oldest first
        self.ended: set[int] = set()
        if instances:
            self.decoders = [self.build("decode")] if instances == 2 else []
            main = importlib.import_module("serving.__main__")
            self.loop = MainLoop(main, [self.scheduler, *self.decoders])

    def build(self, kind: str | None) -> Any:
        """Return a scheduler of the checkout. `kind` is "prefill" or "decode" if there are two
        instances, else None."""
        raise NotImplementedError

    def close(self) -> None:
        if self.loop is not None:
            self.loop.close()

    @property
    def fields(self) -> list[str]:
        hit = ["prefix_hit"] if self.config["enable_prefix_caching"] else []
        loop = [
            *(["deferred", "over"] if self.loop else []),
            *(["handed_over"] if self.decoders else []),
        ]
        return [*FIELDS, *hit, *loop, *(["free_blocks"] if self.config["num_blocks"] else [])]

    def completing(self, batch: Any) -> Any:
        """Return the batch that completes in this step, or None. `batch` is the one that was
        just built."""
        stages = self.config["pp_size"]
        self.flights += [] if batch is None else [batch]
        if stages == 1 or batch is None or len(self.flights) > stages:
            return self.flights.pop(0) if self.flights else None
        return None

    def add(self, request: CheckedRequest) -> None:
        output, prompt = request.output, request.prompt
        if self.loop is not None and self.loop.over:
            self.begin()
        if any(output.id == other.id for other in self.outputs.values()):
            raise RefusedError(f"another request already has the id {output.id!r}")
        whole = len(prompt) + output.length
        self.check_room(whole)
        number = len(self.outputs)
        self.outputs[number] = output
        if self.loop is not None:
            self.loop.add(prompt, output, request.tool_steps)
            return
        tokens = [output.token(index) for index in range(output.length)]
        self.scheduler.add_request(
            [number, MODEL, len(prompt), whole, self.time, 0, prompt, tokens]
        )

    def check_room(self, tokens: int) -> None:
        """Refuse a request of this many tokens if the large pool that stands for an unbounded one
        has no room for it."""

    def schedule(self) -> Any:
        if self.loop is not None:
            if self.loop.over:
                self.begin()
            batch = self.loop.schedule()
        else:
            batch = self.scheduler.schedule(self.time, NPU)
        self.time += 1
        return batch

    def complete(self, batch: Any) -> dict[str, Any]:
        """Complete a batch, if there is one, and return the fields of the step that the batch
        determines."""
        loop: dict[str, Any] = {}
        if self.loop is not None:
            prompts, generated, finished = self.loop.complete(
                batch, busy=bool(batch or self.flights)
            )
            self.time = self.loop.now
            loop = self._seen_of_the_loop()
        elif batch is None:
            prompts, generated, finished = 0, 0, []
        else:
            # The simulator reports a completed batch as the batch's number plus 1.
            prompts, generated, finished = self.scheduler.add_done(
                batch.batch_id + 1, NPU, self.time
            )
        self.ended.update(request.id for request in finished)
        return {
            **loop,
            # The simulator knows how long an output is, but not why it ends.
            "finished": {
                self.name(request): "eos" if self.outputs[request.id].ends_with_eos else "length"
                for request in finished
            },
            "prompt_throughput": prompts,
            "decode_throughput": generated,
        }

    def _seen_of_the_loop(self) -> dict[str, Any]:
        assert self.loop is not None
        handed = [
            self.name(request)
            for decoder in self.decoders
            for request in (decoder.running if self.checkout.has_pool else decoder.request)
        ]
        return {
            "deferred": self.kept(),
            "over": self.loop.over,
            **({"handed_over": handed} if self.decoders else {}),
        }

    def kept(self) -> list[str]:
        """Return the requests that the router holds back until they are due."""
        return [self.outputs[n].id for n in self.loop.deferred()] if self.loop else []

    def name(self, request: Any) -> str:
        return self.outputs[request.id].id


class PoolEngine(Engine):
    """A scheduler with a pool of numbered blocks."""

    def __init__(self, checkout: Checkout, config: Mapping[str, Any]) -> None:
        if config["prioritize_prefill"]:
            raise refuse("prioritize_prefill", True, "false: the scheduler has no such option")
        try:
            super().__init__(checkout, config)
        except OverflowError as error:
            raise refuse("max_num_seqs", 0, f"at least 1: the checkout raises {error!r}") from error

    def begin(self) -> None:
        super().begin()
        self.pool = self.scheduler.memory.npu_pool
        self._requested_blocks = 0  # needed by all requests of the run, including finished ones

    def build(self, kind: str | None) -> Any:
        config, checkout = self.config, self.checkout
        blocks = PLENTY if kind == "decode" else config["num_blocks"] or PLENTY
        weight = checkout.weight_of(config["pp_size"])
        # Add one byte, because the number of GiB is rounded.
        gib = (weight + blocks * checkout.token * config["block_size"] + 1) / GIB
        made = build(checkout.scheduler, gib, config, config["pp_size"], 0, kind)
        assert made.memory.npu_pool.num_blocks == blocks, made.memory.npu_pool.num_blocks
        return made

    @property
    def fields(self) -> list[str]:
        return [*super().fields, "computed", "blocks"]

    def check_room(self, tokens: int) -> None:
        if self.config["num_blocks"] is not None:
            return
        blocks = self._requested_blocks + -(-tokens // self.config["block_size"])
        if blocks > PLENTY:
            raise RefusedError(
                f"refused by the target: the requests so far fill {self._requested_blocks} of "
                f"the {PLENTY} blocks that represent an unbounded pool; set num_blocks"
            )
        self._requested_blocks = blocks

    def step(self) -> dict[str, Any]:
        before = {request.id: request.num_preemptions for request in self.scheduler.running}
        batch = self.schedule()
        requests = [] if batch is None else batch.requests
        tokens = {} if batch is None else batch.scheduled_tokens
        # The scheduler counts the tokens of a batch as computed once it has built the batch.
        start = {
            request.id: request.num_computed_tokens - tokens[request.id] for request in requests
        }
        decodes = {decodes_at(request, start[request.id]) for request in requests}
        preempted = [
            self.name(request)
            for request in self.scheduler.waiting
            if request.num_preemptions > before.get(request.id, request.num_preemptions)
        ]
        due = self.completing(batch)
        # Leave out requests that have ended in this instance and continue in the second one.
        ending = [] if due is None else [r for r in due.requests if r.id not in self.ended]
        reached = {request.id: request.num_tokens_reached for request in ending}
        completed = self.complete(due)
        return {
            "kind": kind_of(decodes),
            "scheduled": {self.name(request): tokens[request.id] for request in requests},
            "emitted": {
                self.name(request): request.num_tokens_reached - reached[request.id]
                for request in ending
                if request.num_tokens_reached > reached[request.id]
            },
            "preempted": preempted,
            **completed,
            **self._seen_after(),
        }

    def _seen_after(self) -> dict[str, Any]:
        running, waiting = self.scheduler.running, self.scheduler.waiting
        seen: dict[str, Any] = {
            "waiting": [self.name(request) for request in waiting] + self.kept(),
            "running": [self.name(request) for request in running],
            "prefilling": [
                self.name(request)
                for request in running
                if not decodes_at(request, request.num_computed_tokens)
            ],
            "computed": {
                self.name(request): request.num_computed_tokens
                for request in (*running, *waiting)
                if request.num_computed_tokens
            },
            # The protocol numbers blocks from 1.
            "blocks": {
                self.outputs[number].id: [block.block_id + 1 for block in blocks]
                for number, blocks in self.scheduler.kv.req_to_blocks.items()
                if blocks
            },
        }
        if self.config["enable_prefix_caching"]:
            # Leave out waiting requests: they have been looked up as well, but may find other
            # tokens when they are admitted.
            seen["prefix_hit"] = {self.name(request): request.npu_cache_hit for request in running}
        if self.config["num_blocks"] is not None:
            seen["free_blocks"] = int(self.pool.get_num_free_blocks())
        return seen


def decodes_at(request: Any, computed: int) -> bool:
    """Return whether a request with `computed` computed tokens decodes. It does if at most its last
    generated token remains to be computed."""
    generated: int = request.num_tokens_reached - request.original_input
    return generated > 0 and request.num_tokens_reached - computed <= 1


class RadixEngine(Engine):
    """A scheduler with a radix tree. The fields of a step are read from the scheduler's requests
    and batches."""

    def __init__(self, checkout: Checkout, config: Mapping[str, Any]) -> None:
        if "enable_chunked_prefill" not in inspect.signature(checkout.scheduler).parameters:
            for key, value in {
                "enable_chunked_prefill": False,
                "long_prefill_token_threshold": 0,
            }.items():
                if config[key] != value:
                    valid = "false" if value is False else "0"
                    raise refuse(key, config[key], f"{valid}: the release has no such option")
        self.token = checkout.token
        self.block = checkout.token * config["block_size"]
        super().__init__(checkout, config)

    def build(self, kind: str | None) -> Any:
        config, checkout = self.config, self.checkout
        pool = ((kind != "decode" and config["num_blocks"]) or ROOMY) * self.block
        # Add one byte, because the number of GiB is rounded.
        gib = (checkout.weight_of(config["pp_size"]) + pool + 1) / GIB
        host = ROOMY * self.block / GIB
        return build(checkout.scheduler, gib, config, config["pp_size"], host, kind)

    @property
    def fields(self) -> list[str]:
        return [*super().fields, *(["computed"] if self.counts else [])]

    @property
    def counts(self) -> bool:
        """Whether the scheduler's count of a request's computed tokens includes all decisions.
        Release 1.0.0 has no such count, and with several pipeline stages it omits tokens in
        flight."""
        return self.checkout.has_router and self.config["pp_size"] == 1

    def step(self) -> dict[str, Any]:
        batch = self.schedule()
        requests = [] if batch is None else list(batch.requests)
        tokens = [] if batch is None else list(batch.q_list)
        # A request with `is_init` false has generated a token.
        decodes = {not request.is_init for request in requests}
        due = self.completing(batch)
        ending = [] if due is None else list(due.requests)
        completed = self.complete(due)
        return {
            "kind": kind_of(decodes),
            "scheduled": {
                self.name(request): count for request, count in zip(requests, tokens, strict=True)
            },
            # A request records only the time of its last token.
            "emitted": {
                self.name(request): 1 for request in ending if request.recent_end == self.time
            },
            "preempted": [],
            **completed,
            **self._seen_after(),
        }

    def _seen_after(self) -> dict[str, Any]:
        # A request is in no queue while its batch is in flight.
        away = [request for batch in self.flights for request in batch.requests]
        waiting = [request for request in self.scheduler.request if not has_started(request)]
        running = away + [request for request in self.scheduler.request if has_started(request)]
        seen: dict[str, Any] = {
            "waiting": [self.name(request) for request in waiting] + self.kept(),
            "running": [self.name(request) for request in running],
            "prefilling": [self.name(request) for request in running if request.is_init],
        }
        if self.counts:
            seen["computed"] = {
                self.name(request): int(request.num_computed_tokens) for request in running
            }
        if self.config["enable_prefix_caching"]:
            seen["prefix_hit"] = {
                self.name(request): request.prefix_cache_hit for request in running
            }
        if self.config["num_blocks"] is not None:
            memory = self.scheduler.memory
            free = memory.npu_mem - memory.npu_used
            if self.config["enable_prefix_caching"]:
                free += memory.npu_prefix_cache.evictable_size() * self.token
            seen["free_blocks"] = int(free // self.block)
        return seen


def has_started(request: Any) -> bool:
    """Return whether the request has ever been in a batch: then a delay is recorded, or the request
    is no longer new."""
    return request.queuing_delay != NEVER or not request.is_init


class LlmServingSimTarget(HostedTarget):
    """Serve the protocol's operations with one checkout. The first `start` imports it."""

    def __init__(self) -> None:
        super().__init__()
        self._checkout: Checkout | None = None

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "llmservingsim")
        protocol_checks.check_keys(config, KEYS)
        if self._checkout is None:
            folder = os.environ.get(VARIABLE)
            if not folder:
                raise RefusedError(f"{VARIABLE} is not set; valid: a checkout's folder")
            self._checkout = load(folder, KEYS)
        kind = PoolEngine if self._checkout.has_pool else RadixEngine
        engine = kind(self._checkout, config)
        described = ("llmservingsim", self._checkout.version, engine.fields)
        return Hosted(engine, *described, self._checkout.defaults)

    def stop(self) -> Reply:
        if self._engine is not None:
            self._engine.close()
        return super().stop()

    def admit(self, engine: Engine, request: CheckedRequest) -> None:
        engine.add(request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        self._started()
        message = "LLMServingSim has no aborts"
        return {"ok": False, "error": "unsupported", "message": message}

    def advance(self, engine: PoolEngine | RadixEngine) -> dict[str, Any]:
        return engine.step()


def main() -> None:
    coverage.count_packages(*PACKAGES)
    serve(LlmServingSimTarget())
