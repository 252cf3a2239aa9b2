"""vLLM's own scheduler and its own block pool, around a model that is not there.

What refuses, decides, allocates, caches and counts is the release's code. The model runner is ours:
it "samples" the tokens that the scenario prescribes, for every request whose computed tokens have
caught up with its known ones: one, and the drafts before it that are right.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .protocol_checks import CheckedRequest, RefusedError, refuse
    from .streams import Output
    from .vllm_door import taken_in
    from .vllm_drafts import Drafts
    from .vllm_offline import block_hasher
    from .vllm_release import Release, configure
else:
    from protocol_checks import CheckedRequest, RefusedError, refuse
    from streams import Output
    from vllm_door import taken_in
    from vllm_drafts import Drafts
    from vllm_offline import block_hasher
    from vllm_release import Release, configure

NULL_BLOCK = 1  # one block of vLLM's pool is never given to a request
SPARE_REQUESTS = 64  # for whose cached contents an unbounded pool has room
MAX_BLOCKS = 1_000_000  # of a pool that stands for an unbounded one: a second, and 150 MB


class Engine:
    """A fresh scheduler of the release for one configuration."""

    def __init__(self, release: Release, config: Mapping[str, Any]) -> None:
        self.release = release
        self.config = config
        vllm_config = configure(release, config)
        self.usable_blocks = config["num_blocks"] or plenty_of_blocks(config)
        self.scheduler = _scheduler(
            *(release.scheduler_class, vllm_config, config["block_size"], self.usable_blocks)
        )
        self.drafts = Drafts(config.get("num_speculative_tokens", 0))
        self._hasher = block_hasher(vllm_config)
        self._request_class = importlib.import_module("vllm.v1.request").Request
        self._aborted = importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self._runner_output = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput
        self.hits: dict[str, int] = {}  # tokens that a request found cached when last admitted
        self._outputs: dict[str, Output] = {}
        self._arrivals = 0
        self._asked_blocks = 0  # by all requests so far, finished ones included

    @property
    def requests(self) -> Mapping[str, Any]:
        """The unfinished requests, in the order of their arrival."""
        requests: dict[str, Any] = self.scheduler.requests
        return requests

    def add(self, asked: CheckedRequest) -> None:
        """Take a request through vLLM's front door into the queue; raises RefusedError."""
        name = asked.output.id
        if name in self.requests:
            raise RefusedError(f"a live request has the id {name!r} already")
        arrival = float(self._arrivals + 1)
        request = taken_in(self.release, self.config["max_model_len"], asked, arrival)
        self._check_unbounded(len(asked.prompt) + asked.max_tokens)
        self._arrivals += 1
        own = self._request_class.from_engine_core_request(request, self._hasher)
        self.scheduler.add_request(own)
        self._outputs[name] = asked.output

    def _check_unbounded(self, tokens: int) -> None:
        """A pool that stands for an unbounded one must not come round to cached contents."""
        if self.config["num_blocks"] is not None or not self.config["enable_prefix_caching"]:
            return
        asked = self._asked_blocks + blocks_for(tokens, self.config["block_size"])
        if asked > self.usable_blocks:
            raise RefusedError(
                f"refused by the target: the requests so far fill {self._asked_blocks} blocks of "
                f"the {self.usable_blocks} that stand for an unbounded pool; give a num_blocks"
            )
        self._asked_blocks = asked

    def abort(self, name: str) -> bool:
        """End a request at once; false if the scheduler does not know it."""
        if name not in self.requests:
            return False
        self.scheduler.finish_requests(name, self._aborted)
        return True

    def execute(self, decision: Any) -> Any:
        """What a model runner returns for a scheduling decision."""
        names = list(decision.num_scheduled_tokens)
        return self._runner_output(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                self._sampled(name, decision.scheduled_spec_decode_tokens.get(name, ()))
                for name in names
            ],
            prompt_logprobs_dict={},
        )

    def _sampled(self, name: str, drafts: Iterable[int]) -> list[int]:
        """The drafts that are right and the next token, or none while known tokens are left to be
        computed."""
        request = self.requests[name]
        # The scheduler has already counted the tokens of this step as computed.
        if request.num_computed_tokens < request.num_tokens:
            return []
        output, first = self._outputs[name], request.num_output_tokens
        last = first + self.drafts.right(output, drafts)
        return [output.token(number) for number in range(first, last + 1)]

    def blocks(self) -> dict[str, list[int]]:
        """The physical blocks of every request that holds some."""
        [manager] = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        holders = manager.req_to_blocks.items()
        return {name: [block.block_id for block in blocks] for name, blocks in holders if blocks}

    def free_blocks(self) -> int:
        """Blocks that no request holds, those with cached contents included."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_size)


def plenty_of_blocks(config: Mapping[str, Any]) -> int:
    """The size of a pool that stands for an unbounded one; raises RefusedError if it is too big.

    A full batch of the longest requests and the cached contents of some more, beside what the
    watermark keeps free: that share is of the pool that there is.
    """
    longest = blocks_for(config["max_model_len"], config["block_size"])
    needed = (config["max_num_seqs"] + SPARE_REQUESTS) * longest
    plenty = int(needed / (1 - config["watermark"])) + 1
    if plenty > MAX_BLOCKS:
        valid = (
            f"a number of blocks: a pool that stands for an unbounded one would have {plenty} "
            f"(of max_num_seqs, max_model_len, block_size and watermark), {MAX_BLOCKS} at most"
        )
        raise refuse("num_blocks", None, valid)
    return plenty


def _scheduler(chosen: Any, vllm_config: Any, block_size: int, usable_blocks: int) -> Any:
    """A scheduler with a pool of its own; takes 1 ms, and 1 ms more for each 1,000 blocks."""
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    structured = importlib.import_module("vllm.v1.structured_output")
    num_blocks = usable_blocks + NULL_BLOCK
    spec = interface.FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=32,
        dtype=importlib.import_module("torch").float32,
    )
    group = interface.KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=spec)
    vllm_config.cache_config.num_gpu_blocks = num_blocks
    return chosen(
        vllm_config=vllm_config,
        kv_cache_config=interface.KVCacheConfig(
            num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[group]
        ),
        structured_output_manager=structured.StructuredOutputManager(vllm_config),
        block_size=block_size,
        log_stats=False,
    )
