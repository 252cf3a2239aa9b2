"""vLLM's own scheduler and its own block pool, around a model that is not there.

What refuses, decides, allocates, caches and counts is the release's code. The model runner is ours:
it "samples" the tokens that the scenario prescribes, for every request whose computed tokens have
caught up with its known ones: one, and the drafts before it that are right.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import vllm_encoder, vllm_in_flight
    from .protocol_checks import CheckedRequest, RefusedError, refuse
    from .streams import Output
    from .vllm_door import taken_in
    from .vllm_drafts import Drafts
    from .vllm_in_flight import Flight
    from .vllm_loads import Offer
    from .vllm_offline import block_hasher
    from .vllm_release import Release, configure
    from .vllm_view import SchedulerView
else:
    import vllm_encoder
    import vllm_in_flight
    from protocol_checks import CheckedRequest, RefusedError, refuse
    from streams import Output
    from vllm_door import taken_in
    from vllm_drafts import Drafts
    from vllm_in_flight import Flight
    from vllm_loads import Offer
    from vllm_offline import block_hasher
    from vllm_release import Release, configure
    from vllm_view import SchedulerView

NULL_BLOCK = 1  # one block of vLLM's pool is never given to a request
SPARE_REQUESTS = 64  # for whose cached contents an unbounded pool has room
MAX_BLOCKS = 1_000_000  # of a pool that stands for an unbounded one: a second, and 150 MB


class Engine(SchedulerView):
    """A fresh scheduler of the release for one configuration."""

    def __init__(self, release: Release, config: Mapping[str, Any]) -> None:
        vllm_encoder.check(config)
        vllm_in_flight.check(config)
        vllm_config = configure(release, config)
        self.usable_blocks = config["num_blocks"] or plenty_of_blocks(config)
        pool = (config["block_size"], self.usable_blocks)
        super().__init__(_scheduler(class_for(release, config), vllm_config, *pool), config)
        vllm_encoder.equip(self.scheduler, config)
        self.release = release
        self.drafts = Drafts(config)
        self._hasher = block_hasher(vllm_config)
        self._request_class = importlib.import_module("vllm.v1.request").Request
        self._aborted = importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self._runner_output = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput
        self._loads = self.scheduler.connector.loads if config.get("kv_connector") else None
        self._outputs: dict[str, Output] = {}
        self._arrivals = 0
        self._asked_blocks = 0  # by all requests so far, finished ones included

    def add(self, asked: CheckedRequest) -> None:
        """Take a request through vLLM's front door into the queue; raises RefusedError."""
        name = asked.output.id
        if name in self.requests:
            raise RefusedError(f"a live request has the id {name!r} already")
        arrival = float(self._arrivals + 1)
        request = taken_in(self.release, self.config["max_model_len"], asked, arrival)
        if asked.inputs:
            request.mm_features = vllm_encoder.features(self.config, asked)
            self.encoded[name] = tuple(one.number for one in asked.inputs)
        self._check_unbounded(len(asked.prompt) + asked.max_tokens)
        self._arrivals += 1
        own = self._request_class.from_engine_core_request(request, self._hasher)
        self.scheduler.add_request(own)
        self._outputs[name] = asked.output
        if self._loads is not None:
            self._offer(self._loads, asked)

    def _offer(self, loads: Any, asked: CheckedRequest) -> None:
        """Tell the connector what it has of a request, and whether it sends it."""
        name = asked.output.id
        if asked.external_tokens:
            tokens = min(asked.external_tokens, len(asked.prompt))
            loads.offers[name] = Offer(tokens, asked.load_steps, asked.load_fails_at)
        loads.deferrals[name] = asked.load_deferrals
        if asked.send_steps is not None:
            loads.send_steps[name] = asked.send_steps

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
        if name not in self.requests or self.requests[name].is_finished():
            return False
        self.scheduler.finish_requests(name, self._aborted)
        return True

    def execute(self, decision: Any) -> Flight:
        """A scheduling decision with what a model runner returns for it."""
        names = list(decision.num_scheduled_tokens)
        flight = self.flight(decision)
        tokens: list[list[int]] = []
        for name in names:
            if name not in flight.first:
                tokens.append([])
                continue
            tokens.append(self._sampled(name, flight.first[name], flight.drafts.get(name, 0)))
            self.flights.sampled(name, len(tokens[-1]))
        output = self._runner_output(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
            prompt_logprobs_dict={},
        )
        return flight._replace(output=output)

    def loads_step(self, output: Any) -> None:
        """A step of all loads: what the worker says of them with its output."""
        if self._loads is not None:
            said = importlib.import_module("vllm.v1.outputs").KVConnectorOutput
            report = self._loads.step()
            failed = {
                name: right
                for name, right in report.landed.items()
                if right < self.requests[name].num_computed_tokens
            }
            held = self.blocks() if failed else {}
            lost = {
                block
                for name, right in failed.items()
                for block in held.get(name, ())[right // self.config["block_size"] :]
            }
            output.kv_connector_output = said(
                finished_recving={*report.landed} or None,
                finished_sending=report.sent or None,
                invalid_block_ids=lost,
            )

    def _sampled(self, name: str, first: int, drafts: int) -> list[int]:
        """The drafts that are right and the next token, from the output's token `first` on."""
        output = self._outputs[name]
        last = first + self.drafts.right(output, drafts)
        return [output.token(number) for number in range(first, last + 1)]


def class_for(release: Release, config: Mapping[str, Any]) -> Any:
    """The scheduler class of the configuration, as vLLM chooses it; raises RefusedError where the
    user's class cannot decide ahead."""
    if not config.get("async_scheduling"):
        return release.scheduler_class
    ahead = importlib.import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler
    if issubclass(ahead, release.scheduler_class):
        return ahead
    if not issubclass(release.scheduler_class, ahead):
        valid = f"false ({release.scheduler_class.__name__} is no AsyncScheduler)"
        raise refuse("async_scheduling", True, valid)
    return release.scheduler_class


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
