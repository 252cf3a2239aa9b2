"""LLMServingSim 1.0.0 and 1.1.0: one queue of requests, with a radix tree as prefix cache.

The page on continuous batching describes this generation of the code. The fields of a step are read
from the scheduler's requests and batches. The pool is the memory that the model's weight leaves
free, and its blocks have no numbers. Requests that the scheduler evicts are moved to the host,
which has room for all of them. They keep their computed tokens, so none is preempted.

Source: serving/core/scheduler.py of 1.1.0, inference_serving/scheduler.py of 1.0.0.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from ..protocol_checks import CheckedRequest, RefusedError, refuse
from ..streams import Output

FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["computed", "prompt_throughput", "decode_throughput"]
# All other parameters have the same name in both releases.
OLD_NAMES = {"max_num_seqs": "max_batch", "num_npus": "npu_num", "pp_size": "npu_group"}
GIB = 1024**3
PLENTY = 10**9  # blocks of a pool that stands for an unbounded one, and of the host's memory
NPU = 0  # the only accelerator, which starts each batch and ends it
NEVER = -1  # for times that are not known yet


def build(scheduler: Any, gib: float, config: Mapping[str, Any], model: str, host: float) -> Any:
    """Return a scheduler for one accelerator with `gib` GiB of memory, and a host with `host`
    GiB."""
    values = {
        **{"model": model, "node_id": 0, "instance_id": 0, "num_npus": 1, "tp_size": 1},
        **{"pp_size": 1, "npu_mem": gib, "cpu_mem": host, "start_npu": NPU, "pd_type": None},
        **{"fp": 16, "req_num": 1, "enable_prefix_sharing": False},
        **{"prefix_pool": None, "prefix_storage": None},
        **{key: config[key] for key in OPTIONS},
        # As on the simulator's command line, 0 means no limit.
        "max_num_seqs": config["max_num_seqs"] or float("inf"),
    }
    known = inspect.signature(scheduler).parameters
    named = {key if key in known else OLD_NAMES.get(key, key): values[key] for key in values}
    return scheduler(**{key: value for key, value in named.items() if key in known})


OPTIONS = (
    *("max_num_batched_tokens", "block_size", "enable_prefix_caching", "prioritize_prefill"),
    *("enable_chunked_prefill", "long_prefill_token_threshold"),
)


class RadixEngine:
    """A fresh scheduler of the checkout for one configuration.

    `weight` is the size of the model, and `token` the size of one token's cache, in bytes.
    """

    def __init__(
        self, scheduler: Any, model: str, weight: int, token: int, config: Mapping[str, Any]
    ) -> None:
        if "enable_chunked_prefill" not in inspect.signature(scheduler).parameters:
            for key, value in {
                "enable_chunked_prefill": False,
                "long_prefill_token_threshold": 0,
            }.items():
                if config[key] != value:
                    valid = "false" if value is False else "0"
                    raise refuse(key, config[key], f"{valid}: the release has no such option")
        self.config, self.model, self.token = config, model, token
        self.block = token * config["block_size"]
        pool = (config["num_blocks"] or PLENTY) * self.block
        # One byte more, because the number of GiB is rounded.
        gib, host = (weight + pool + 1) / GIB, PLENTY * self.block / GIB
        self.scheduler = build(scheduler, gib, config, model, host)
        if self.scheduler.max_num_batched_tokens != config["max_num_batched_tokens"]:
            raise refuse(
                "max_num_batched_tokens",
                config["max_num_batched_tokens"],
                f"at most {self.scheduler.max_num_batched_tokens}, the longest context of {model}",
            )
        self.outputs: dict[int, Output] = {}
        self.time = 0  # in steps

    @property
    def fields(self) -> list[str]:
        hit = ["prefix_hit"] if self.config["enable_prefix_caching"] else []
        return [*FIELDS, *hit, *(["free_blocks"] if self.config["num_blocks"] else [])]

    def add(self, request: CheckedRequest) -> None:
        """Queue a request. The scheduler itself refuses none."""
        output, prompt = request.output, request.prompt
        if any(output.id == other.id for other in self.outputs.values()):
            raise RefusedError(f"another request already has the id {output.id!r}")
        number = len(self.outputs)
        self.outputs[number] = output
        tokens = [output.token(index) for index in range(output.length)]
        whole = len(prompt) + output.length
        self.scheduler.add_request(
            [number, self.model, len(prompt), whole, self.time, 0, prompt, tokens]
        )

    def step(self) -> dict[str, Any]:
        batch = self.scheduler.schedule(self.time, NPU)
        self.time += 1
        requests = [] if batch is None else list(batch.requests)
        tokens = [] if batch is None else list(batch.q_list)
        prefills = {request.is_init for request in requests}  # such a request has no token yet
        prompts, generated, finished = (0, 0, [])
        if batch is not None:
            # The simulator reports a batch as done by its number plus 1.
            prompts, generated, finished = self.scheduler.add_done(
                batch.batch_id + 1, NPU, self.time
            )
        return {
            "kind": kind_of(prefills),
            "scheduled": {
                self.name(request): count for request, count in zip(requests, tokens, strict=True)
            },
            # A request records only the time of its last token.
            "emitted": {
                self.name(request): 1 for request in requests if request.recent_end == self.time
            },
            "preempted": [],
            "finished": {
                self.name(request): "eos" if self.outputs[request.id].ends_with_eos else "length"
                for request in finished
            },
            "prompt_throughput": prompts,
            "decode_throughput": generated,
            **self._seen_after(),
        }

    def _seen_after(self) -> dict[str, Any]:
        queue = self.scheduler.request
        running = [request for request in queue if has_started(request)]
        seen: dict[str, Any] = {
            "waiting": [self.name(request) for request in queue if not has_started(request)],
            "running": [self.name(request) for request in running],
            "prefilling": [self.name(request) for request in running if request.is_init],
            "computed": {self.name(request): computed(request) for request in running},
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

    def name(self, request: Any) -> str:
        return self.outputs[request.id].id


def has_started(request: Any) -> bool:
    """Return whether the request has been in a batch. From then on it has a queuing delay, or is no
    longer new."""
    return request.queuing_delay != NEVER or not request.is_init


def computed(request: Any) -> int:
    """Return the tokens that count as computed. Release 1.0.0 keeps the number of known tokens.
    Once the prompt is done, all known tokens but the last are computed."""
    if hasattr(request, "num_computed_tokens"):
        return int(request.num_computed_tokens)
    return 0 if request.is_init else int(request.input) - 1


def kind_of(prefills: set[bool]) -> str:
    if len(prefills) != 1:
        return "mixed" if prefills else "idle"
    return "prefill" if True in prefills else "decode"
