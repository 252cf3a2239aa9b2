"""Target for LLMServingSim's own scheduler and memory model, without the simulator.

Everything that decides, allocates, caches and counts is the checkout's unmodified code. Even the
size of the pool follows from the memory of the accelerator. This module drives the newer generation
of the code, which has a block pool. `radix` drives the earlier generation, which the page on
continuous batching describes.

Needs the few packages that the checkout imports (numpy, pyyaml, rich):

    SCHEDPROOF_LLMSERVINGSIM=DIR python gate/targets/run_adapter.py llmservingsim
"""

import importlib
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .. import coverage, protocol_checks
from ..jsonl import Reply, serve
from ..protocol_checks import CheckedRequest, RefusedError, refuse
from ..release_adapter import Hosted, HostedTarget
from ..streams import Output
from .radix import RadixEngine
from .radix import build as build_radix

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
    "pp_size": protocol_checks.Kind(
        lambda value: value == 1 and value is not True, "1: a step completes at once"
    ),
}
FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["computed", "blocks", "prompt_throughput", "decode_throughput"]
MODEL = "meta-llama/Llama-3.1-8B"  # a model in the checkout's configs/model
GIB = 1024**3
BITS = 16  # bits of a number in memory
NPU = 0  # the only accelerator, which starts each batch and ends it
PROBE = (17, 16)  # GiB that are enough for the model, and a block size: to measure its memory
PLENTY = 20_000  # blocks of a pool that stands for an unbounded one; building it takes 20 ms
PACKAGES = ("serving.core", "inference_serving")  # the newer name comes first
# Only the trace generator needs these, to read tables and fit curves to them.
NOT_NEEDED = ("pandas", "sklearn", "joblib")


class Checkout(NamedTuple):
    """The scheduler of a checkout, and its memory needs.

    `weight` is the size of the model, and `token` the size of one token's cache, in bytes.
    `has_pool` says whether the code has a pool of numbered blocks.
    """

    version: str
    scheduler: Any
    weight: int
    token: int
    has_pool: bool


def package_in(folder: str) -> str:
    """Return the package that contains the scheduler; raise RefusedError if there is none."""
    for package in PACKAGES:
        if Path(folder, *package.split("."), "scheduler.py").is_file():
            return package
    raise RefusedError(f"{folder} is not a checkout of LLMServingSim")


def load(folder: str) -> Checkout:
    """Return the scheduler of the checkout in a folder; raise RefusedError if there is none."""
    package = package_in(folder)
    sys.path.insert(0, folder)
    for name in NOT_NEEDED:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
    try:
        scheduler = importlib.import_module(f"{package}.scheduler").Scheduler
    except ImportError as error:
        raise RefusedError(f"{folder} cannot be imported: {error}") from error
    logging.getLogger("llmservingsim").setLevel(logging.CRITICAL)
    gib, block = PROBE
    config = {**SMALLEST, "block_size": block}
    has_pool = hasattr(scheduler, "_schedule_running")
    make = build if has_pool else partial(build_radix, model=MODEL, host=0)
    memory = make(scheduler, gib, config).memory
    version = version_of(Path(folder))
    return Checkout(version, scheduler, memory.weight, memory.get_kv(1), has_pool)


SMALLEST = {
    **{"max_num_seqs": 1, "max_num_batched_tokens": 1, "long_prefill_token_threshold": 0},
    **{"enable_chunked_prefill": True, "enable_prefix_caching": False},
    "prioritize_prefill": False,
}


def build(scheduler: Any, gib: float, config: Mapping[str, Any], stages: int = 1) -> Any:
    """Return a scheduler for one accelerator with `gib` GiB of memory, no slower memory, and
    `stages` stages."""
    return scheduler(
        **{"model": MODEL, "node_id": 0, "instance_id": 0, "num_npus": 1, "tp_size": 1},
        **{"pp_size": stages, "npu_mem": gib, "cpu_mem": 0, "start_npu": NPU, "pd_type": None},
        **{"fp": BITS, "req_num": 1, "enable_prefix_sharing": False},
        **{"prefix_pool": None, "prefix_storage": None},
        # As on the simulator's command line, 0 means no limit.
        max_num_seqs=config["max_num_seqs"] or float("inf"),
        max_num_batched_tokens=config["max_num_batched_tokens"],
        block_size=config["block_size"],
        enable_prefix_caching=config["enable_prefix_caching"],
        enable_chunked_prefill=config["enable_chunked_prefill"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
    )


def version_of(place: Path) -> str:
    """Return the newest release in the checkout's list of changes, with a note if the code is
    newer."""
    changes = place / "CHANGELOG.md"
    lines = changes.read_text("utf-8").splitlines() if changes.is_file() else []
    titles = [line.partition("[")[2].partition("]")[0] for line in lines if line[:4] == "## ["]
    releases = [title.removeprefix("v") for title in titles if title != "Unreleased"]
    if not releases:
        return "unknown"
    return f"after {releases[0]}" if "Unreleased" in titles[:1] else releases[0]


class Engine:
    """A fresh scheduler of the checkout for one configuration."""

    def __init__(self, checkout: Checkout, config: Mapping[str, Any]) -> None:
        if config["prioritize_prefill"]:
            raise refuse("prioritize_prefill", True, "false: the scheduler has no such option")
        self.config = config
        self.blocks_in_all = config["num_blocks"] or PLENTY
        block = checkout.token * config["block_size"]
        # One byte more, because the number of GiB is rounded.
        gib = (checkout.weight + self.blocks_in_all * block + 1) / GIB
        try:
            self.scheduler = build(checkout.scheduler, gib, config)
        except OverflowError as error:
            raise refuse("max_num_seqs", 0, f"at least 1: the checkout raises {error!r}") from error
        self.pool = self.scheduler.memory.npu_pool
        assert self.pool.num_blocks == self.blocks_in_all, self.pool.num_blocks
        if self.scheduler.max_num_batched_tokens != config["max_num_batched_tokens"]:
            raise refuse(
                "max_num_batched_tokens",
                config["max_num_batched_tokens"],
                f"at most {self.scheduler.max_num_batched_tokens}, the longest context of {MODEL}",
            )
        self.outputs: dict[int, Output] = {}
        self.steps = 0
        self._known: set[str] = set()
        self._requested_blocks = 0  # requested by all requests so far, finished ones included

    def add(self, request: CheckedRequest) -> None:
        """Queue a request. The scheduler itself refuses none."""
        output, prompt = request.output, request.prompt
        if output.id in self._known:
            raise RefusedError(f"another request already has the id {output.id!r}")
        self._check_unbounded(len(prompt) + output.length)
        self._known.add(output.id)
        number = len(self.outputs)
        self.outputs[number] = output
        whole = len(prompt) + output.length
        tokens = [output.token(index) for index in range(output.length)]
        self.scheduler.add_request(
            [number, MODEL, len(prompt), whole, self.steps, 0, prompt, tokens]
        )

    def _check_unbounded(self, tokens: int) -> None:
        if self.config["num_blocks"] is not None:
            return
        blocks = self._requested_blocks + -(-tokens // self.config["block_size"])
        if blocks > PLENTY:
            raise RefusedError(
                "refused by the target: the requests so far fill "
                f"{self._requested_blocks} blocks of the {PLENTY} that stand for an "
                "unbounded pool; set num_blocks"
            )
        self._requested_blocks = blocks

    @property
    def fields(self) -> list[str]:
        hit = ["prefix_hit"] if self.config["enable_prefix_caching"] else []
        return [*FIELDS, *hit, *(["free_blocks"] if self.config["num_blocks"] else [])]

    def schedule(self) -> Any:
        batch = self.scheduler.schedule(self.steps, NPU)
        self.steps += 1
        return batch

    def complete(self, batch: Any) -> tuple[int, int, list[Any]]:
        """Complete a batch; return both throughputs in tokens, and the finished requests."""
        # The simulator reports a batch as done by its number plus 1.
        done: tuple[int, int, list[Any]] = self.scheduler.add_done(
            batch.batch_id + 1, NPU, self.steps
        )
        return done

    def name(self, request: Any) -> str:
        return self.outputs[request.id].id

    def blocks(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the blocks of every request that holds some; the pool's first block has number
        1."""
        for number, blocks in self.scheduler.kv.req_to_blocks.items():
            if blocks:
                yield self.outputs[number].id, [block.block_id + 1 for block in blocks]

    def step(self) -> dict[str, Any]:
        before = {request.id: request.num_preemptions for request in self.scheduler.running}
        batch = self.schedule()
        requests = [] if batch is None else batch.requests
        tokens = {} if batch is None else batch.scheduled_tokens
        reached = {request.id: request.num_tokens_reached for request in requests}
        # The scheduler counts a batch's tokens as computed as soon as it has built the batch.
        start = {
            request.id: request.num_computed_tokens - tokens[request.id] for request in requests
        }
        decodes = {decodes_at(request, start[request.id]) for request in requests}
        preempted = [
            self.name(request)
            for request in self.scheduler.waiting
            if request.num_preemptions > before.get(request.id, request.num_preemptions)
        ]
        prompts, generated, finished = (0, 0, []) if batch is None else self.complete(batch)
        return {
            "kind": kind_of(decodes),
            "scheduled": {self.name(request): tokens[request.id] for request in requests},
            "emitted": {
                self.name(request): request.num_tokens_reached - reached[request.id]
                for request in requests
                if request.num_tokens_reached > reached[request.id]
            },
            "preempted": preempted,
            "finished": {self.name(request): reason(self, request) for request in finished},
            "prompt_throughput": prompts,
            "decode_throughput": generated,
            **seen_after(self),
        }


class LlmServingSimTarget(HostedTarget):
    """The protocol's operations on one checkout, which the first `start` imports."""

    def __init__(self) -> None:
        super().__init__()
        self._checkout: Checkout | None = None

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "llmservingsim")
        protocol_checks.check_keys(config, KEYS)
        if self._checkout is None:
            folder = os.environ.get(VARIABLE)
            if not folder:
                raise RefusedError(f"{VARIABLE} is not set; valid is a checkout's folder")
            self._checkout = load(folder)
        engine = self._engine_for(self._checkout, config)
        return Hosted(engine, "llmservingsim", self._checkout.version, engine.fields)

    def _engine_for(self, checkout: Checkout, config: dict[str, Any]) -> Engine | RadixEngine:
        if checkout.has_pool:
            return Engine(checkout, config)
        return RadixEngine(checkout.scheduler, MODEL, checkout.weight, checkout.token, config)

    def admit(self, engine: Engine | RadixEngine, request: CheckedRequest) -> None:
        engine.add(request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Answer that aborts are unsupported, since the simulator has none."""
        self._started()
        message = "LLMServingSim has no aborts"
        return {"ok": False, "error": "unsupported", "message": message}

    def advance(self, engine: Engine | RadixEngine) -> dict[str, Any]:
        return engine.step()


def seen_after(engine: Engine) -> dict[str, Any]:
    running, waiting = engine.scheduler.running, engine.scheduler.waiting
    seen: dict[str, Any] = {
        "waiting": [engine.name(request) for request in waiting],
        "running": [engine.name(request) for request in running],
        "prefilling": [
            engine.name(request)
            for request in running
            if not decodes_at(request, request.num_computed_tokens)
        ],
        "computed": {
            engine.name(request): request.num_computed_tokens
            for request in (*running, *waiting)
            if request.num_computed_tokens
        },
        "blocks": dict(engine.blocks()),
    }
    if engine.config["enable_prefix_caching"]:
        # Waiting requests are left out: they were looked up as well, but may find other tokens next
        # time.
        seen["prefix_hit"] = {engine.name(request): request.npu_cache_hit for request in running}
    if engine.config["num_blocks"] is not None:
        seen["free_blocks"] = int(engine.pool.get_num_free_blocks())
    return seen


def decodes_at(request: Any, computed: int) -> bool:
    """Return whether only the last generated token is still to compute after `computed` tokens."""
    generated: int = request.num_tokens_reached - request.original_input
    return generated > 0 and request.num_tokens_reached - computed == 1


def kind_of(decodes: set[bool]) -> str:
    if not decodes:
        return "idle"
    if len(decodes) == 2:
        return "mixed"
    return "decode" if True in decodes else "prefill"


def reason(engine: Engine, request: Any) -> str:
    """Return why the request has finished; the simulator itself knows only lengths."""
    return "eos" if engine.outputs[request.id].ends_with_eos else "length"


def main() -> None:
    coverage.count_packages(*PACKAGES)
    serve(LlmServingSimTarget())
