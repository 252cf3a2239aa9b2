"""Target for LLMServingSim's own scheduler and memory model, without the simulator.

Everything that decides, allocates, caches and counts is the checkout's unmodified code. Even the
size of the pool follows from the memory of the accelerator. There are two generations of the code:

- The newer one has a block pool.
- Releases 1.0.0 and 1.1.0 have one queue of requests, and a radix tree as prefix cache.
  LLMServingSim's page on continuous batching describes them. The pool is the memory that the
  model's weights leave free, and its blocks have no numbers. Requests that the scheduler evicts are
  moved to the host, which has room for all of them. These keep their computed tokens, so no request
  is preempted.

With several pipeline stages (`pp_size`), batches stay in flight. In a step in which the scheduler
builds no batch, the oldest one completes.

Source: serving/core/scheduler.py of the checkout, inference_serving/scheduler.py of 1.0.0.

Needs the few packages that the checkout imports (numpy, pyyaml, rich):

    SCHEDPROOF_LLMSERVINGSIM=DIR python gate/targets/run_adapter.py llmservingsim
"""

import argparse
import ast
import functools
import importlib
import importlib.util
import inspect
import logging
import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import coverage, protocol_checks
from ..jsonl import Reply, serve
from ..protocol_checks import CheckedRequest, Output, RefusedError, refuse
from ..release_adapter import Hosted, HostedTarget, kind_of

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
}
FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["prompt_throughput", "decode_throughput"]
MODEL = "meta-llama/Llama-3.1-8B"  # a model in the checkout's configs/model
GIB = 1024**3
BITS = 16  # bits of a number in memory
NPU = 0  # the number of the only accelerator, which starts and ends every batch
# GiB that are enough for the model, and a block size, with which its memory is measured.
PROBE = (17, 16)
NEVER = -1  # stands for times that are not known yet
PLENTY = 20_000  # blocks of a pool that stands for an unbounded one; building it takes 20 ms
ROOMY = 10**9  # blocks of such a pool without numbered blocks, and of the host's memory
PACKAGES = ("serving.core", "inference_serving")  # possible names, the newer one first
MAINS = ("serving/__main__.py", "main.py")  # the simulator's entry point, the newer one first
# Only the trace generator needs these modules, to read tables and fit curves to them.
NOT_NEEDED = ("pandas", "sklearn", "joblib")


class Checkout(NamedTuple):
    """The scheduler of a checkout, and its memory needs.

    `token` is the size of one token's KV cache, in bytes. `has_pool` says whether the code has a
    pool of numbered blocks. `defaults` are those of its command line, by configuration key.
    """

    version: str
    scheduler: Any
    token: int
    has_pool: bool
    defaults: Mapping[str, Any] = types.MappingProxyType({})

    def weight_of(self, stages: int) -> int:
        """Return the size, in bytes, of the part of the model that one stage holds."""
        return int(_memory(self.scheduler, stages).weight)


def package_in(folder: str) -> str:
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
    has_pool = hasattr(scheduler, "_schedule_running")
    token = _memory(scheduler, 1).get_kv(1)
    defaults = command_line_defaults(Path(folder))
    return Checkout(version_of(Path(folder)), scheduler, token, has_pool, defaults)


def command_line_defaults(folder: Path) -> dict[str, Any]:
    """Return the defaults of the simulator's command line, by configuration key.

    The checkout defines its options inside `main`, which also starts the simulator; so only the
    calls that add an option run here.
    """
    source = next((folder / name for name in MAINS if (folder / name).is_file()), None)
    if source is None:
        return {}
    parser = argparse.ArgumentParser()
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument":
            call = ast.Expression(ast.fix_missing_locations(node))
            eval(compile(call, str(source), "eval"), {"parser": parser, "argparse": argparse})
    values = vars(parser.parse_args([]))
    named = {key: values.get(key, values.get(OLD_NAMES.get(key, key))) for key in KEYS}
    return {key: value for key, value in named.items() if value is not None}


@functools.cache
def _memory(scheduler: Any, stages: int) -> Any:
    gib, block = PROBE
    return build(scheduler, gib, {**SMALLEST, "block_size": block}, stages).memory


SMALLEST = {
    **{"max_num_seqs": 1, "max_num_batched_tokens": 1, "long_prefill_token_threshold": 0},
    **{"enable_chunked_prefill": True, "enable_prefix_caching": False},
    "prioritize_prefill": False,
}


OPTIONS = (
    *("max_num_batched_tokens", "block_size", "enable_prefix_caching", "prioritize_prefill"),
    *("enable_chunked_prefill", "long_prefill_token_threshold"),
)
# In release 1.0.0; all other parameters have the same name in every release.
OLD_NAMES = {"max_num_seqs": "max_batch", "num_npus": "npu_num", "pp_size": "npu_group"}


def build(
    scheduler: Any, gib: float, config: Mapping[str, Any], stages: int = 1, host: float = 0
) -> Any:
    """Return a scheduler for one accelerator with `gib` and a host with `host` GiB of memory."""
    known = inspect.signature(scheduler).parameters
    values = {
        **{"model": MODEL, "node_id": 0, "instance_id": 0, "num_npus": 1, "tp_size": 1},
        **{"pp_size": stages, "npu_mem": gib, "cpu_mem": host, "start_npu": NPU, "pd_type": None},
        **{"fp": BITS, "req_num": 1, "enable_prefix_sharing": False},
        **{"prefix_pool": None, "prefix_storage": None},
        **{key: config[key] for key in OPTIONS if key in known},
        # As on the simulator's command line, 0 means no limit.
        "max_num_seqs": config["max_num_seqs"] or float("inf"),
    }
    named = {key if key in known else OLD_NAMES.get(key, key): values[key] for key in values}
    return scheduler(**{key: value for key, value in named.items() if key in known})


def version_of(place: Path) -> str:
    """Return the newest release in the checkout's changelog, with a note if the code is newer."""
    changes = place / "CHANGELOG.md"
    lines = changes.read_text("utf-8").splitlines() if changes.is_file() else []
    titles = [line.partition("[")[2].partition("]")[0] for line in lines if line[:4] == "## ["]
    releases = [title.removeprefix("v") for title in titles if title != "Unreleased"]
    if not releases:
        return "unknown"
    return f"after {releases[0]}" if "Unreleased" in titles[:1] else releases[0]


class Engine:
    """A fresh scheduler of the checkout for one configuration, in either generation."""

    def __init__(self, scheduler: Any, config: Mapping[str, Any]) -> None:
        if scheduler.max_num_batched_tokens != config["max_num_batched_tokens"]:
            raise refuse(
                "max_num_batched_tokens",
                config["max_num_batched_tokens"],
                f"at most {scheduler.max_num_batched_tokens}, the longest context of {MODEL}",
            )
        self.scheduler, self.config = scheduler, config
        self.outputs: dict[int, Output] = {}
        self.time = 0  # in steps
        self.flights: list[Any] = []  # batches that have not completed, the oldest first

    @property
    def fields(self) -> list[str]:
        hit = ["prefix_hit"] if self.config["enable_prefix_caching"] else []
        return [*FIELDS, *hit, *(["free_blocks"] if self.config["num_blocks"] else [])]

    def completing(self, batch: Any) -> Any:
        """Return the batch that completes in this step, or None; `batch` was just built."""
        stages = self.config["pp_size"]
        self.flights += [] if batch is None else [batch]
        if stages == 1 or batch is None or len(self.flights) > stages:
            return self.flights.pop(0) if self.flights else None
        return None

    def add(self, request: CheckedRequest) -> None:
        output, prompt = request.output, request.prompt
        if any(output.id == other.id for other in self.outputs.values()):
            raise RefusedError(f"another request already has the id {output.id!r}")
        whole = len(prompt) + output.length
        self.check_room(whole)
        number = len(self.outputs)
        self.outputs[number] = output
        tokens = [output.token(index) for index in range(output.length)]
        self.scheduler.add_request(
            [number, MODEL, len(prompt), whole, self.time, 0, prompt, tokens]
        )

    def check_room(self, tokens: int) -> None:
        """Refuse a request of this many tokens if the pool that stands for an unbounded one has no
        room for it."""

    def schedule(self) -> Any:
        batch = self.scheduler.schedule(self.time, NPU)
        self.time += 1
        return batch

    def complete(self, batch: Any) -> dict[str, Any]:
        """Complete a batch, if there is one; return the fields of the step that describe the
        completion."""
        # To report a batch as done, the simulator passes the batch's number plus 1.
        prompts, generated, finished = (
            (0, 0, [])
            if batch is None
            else self.scheduler.add_done(batch.batch_id + 1, NPU, self.time)
        )
        return {
            # The simulator itself knows only lengths.
            "finished": {
                self.name(request): "eos" if self.outputs[request.id].ends_with_eos else "length"
                for request in finished
            },
            "prompt_throughput": prompts,
            "decode_throughput": generated,
        }

    def name(self, request: Any) -> str:
        return self.outputs[request.id].id


class PoolEngine(Engine):
    """A scheduler with a pool of numbered blocks."""

    def __init__(self, checkout: Checkout, config: Mapping[str, Any]) -> None:
        if config["prioritize_prefill"]:
            raise refuse("prioritize_prefill", True, "false: the scheduler has no such option")
        blocks_in_all = config["num_blocks"] or PLENTY
        block = checkout.token * config["block_size"]
        weight = checkout.weight_of(config["pp_size"])
        # One byte more, because the number of GiB is rounded.
        gib = (weight + blocks_in_all * block + 1) / GIB
        try:
            scheduler = build(checkout.scheduler, gib, config, config["pp_size"])
            super().__init__(scheduler, config)
        except OverflowError as error:
            raise refuse("max_num_seqs", 0, f"at least 1: the checkout raises {error!r}") from error
        self.pool = self.scheduler.memory.npu_pool
        assert self.pool.num_blocks == blocks_in_all, self.pool.num_blocks
        self._requested_blocks = 0  # needed by all requests so far, including finished ones

    @property
    def fields(self) -> list[str]:
        return [*super().fields, "computed", "blocks"]

    def check_room(self, tokens: int) -> None:
        if self.config["num_blocks"] is not None:
            return
        blocks = self._requested_blocks + -(-tokens // self.config["block_size"])
        if blocks > PLENTY:
            raise RefusedError(
                f"refused by the target: the requests so far fill {self._requested_blocks} of the "
                f"{PLENTY} blocks that stand for an unbounded pool; set num_blocks"
            )
        self._requested_blocks = blocks

    def step(self) -> dict[str, Any]:
        before = {request.id: request.num_preemptions for request in self.scheduler.running}
        batch = self.schedule()
        requests = [] if batch is None else batch.requests
        tokens = {} if batch is None else batch.scheduled_tokens
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
        due = self.completing(batch)
        ending = [] if due is None else list(due.requests)
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
            "waiting": [self.name(request) for request in waiting],
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
            # The pool's first block has number 1.
            "blocks": {
                self.outputs[number].id: [block.block_id + 1 for block in blocks]
                for number, blocks in self.scheduler.kv.req_to_blocks.items()
                if blocks
            },
        }
        if self.config["enable_prefix_caching"]:
            # Waiting requests are left out: they were also looked up, but may find other tokens
            # next time.
            seen["prefix_hit"] = {self.name(request): request.npu_cache_hit for request in running}
        if self.config["num_blocks"] is not None:
            seen["free_blocks"] = int(self.pool.get_num_free_blocks())
        return seen


def decodes_at(request: Any, computed: int) -> bool:
    """Return whether, after `computed` tokens, at most the last generated token remains to be
    computed."""
    generated: int = request.num_tokens_reached - request.original_input
    return generated > 0 and request.num_tokens_reached - computed <= 1


class RadixEngine(Engine):
    """A scheduler with a radix tree. The fields of a step are read from its requests and
    batches."""

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
        pool = (config["num_blocks"] or ROOMY) * self.block
        # One byte more, because the number of GiB is rounded.
        gib = (checkout.weight_of(config["pp_size"]) + pool + 1) / GIB
        host = ROOMY * self.block / GIB
        super().__init__(build(checkout.scheduler, gib, config, config["pp_size"], host), config)

    @property
    def fields(self) -> list[str]:
        return [*super().fields, *(["computed"] if self.config["pp_size"] == 1 else [])]

    def step(self) -> dict[str, Any]:
        batch = self.schedule()
        requests = [] if batch is None else list(batch.requests)
        tokens = [] if batch is None else list(batch.q_list)
        # Such a request has generated a token.
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
        # A request leaves the queue for as long as it is in a batch in flight.
        away = [request for batch in self.flights for request in batch.requests]
        waiting = [request for request in self.scheduler.request if not has_started(request)]
        running = away + [request for request in self.scheduler.request if has_started(request)]
        seen: dict[str, Any] = {
            "waiting": [self.name(request) for request in waiting],
            "running": [self.name(request) for request in running],
            "prefilling": [self.name(request) for request in running if request.is_init],
        }
        if self.config["pp_size"] == 1:  # tokens in flight are not counted
            seen["computed"] = {self.name(request): computed(request) for request in running}
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
    """Return whether the request has been in a batch, in which case it has a delay, or is no longer
    new."""
    return request.queuing_delay != NEVER or not request.is_init


def computed(request: Any) -> int:
    """Return the number of tokens that count as computed. Release 1.0.0 stores the number of known
    tokens. Once the prompt is done, all known tokens except the last are computed."""
    if hasattr(request, "num_computed_tokens"):
        return int(request.num_computed_tokens)
    return 0 if request.is_init else int(request.input) - 1


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
        kind = PoolEngine if self._checkout.has_pool else RadixEngine
        engine = kind(self._checkout, config)
        described = ("llmservingsim", self._checkout.version, engine.fields)
        return Hosted(engine, *described, self._checkout.defaults)

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
