"""Target for the real Spyre schedulers: vllm-spyre 1.10.0 to sendnn-inference 2.6.3.

Runs in an environment that contains a release, but not schedproof:

    PYTHONPATH=vllm-0.19.1:sendnn-inference-2.1.2 python gate/targets/run_adapter.py spyre

The release's own code decides, pads, allocates and counts. Only the model is replaced. Its
replacement returns constant logits, and "samples" the tokens that the scenario prescribes.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .. import coverage, protocol_checks, scheduler_class
from ..jsonl import serve
from ..protocol_checks import EOS, CheckedRequest, Output, RefusedError
from ..release_adapter import Hosted, HostedTarget, ids, outputs
from ..vllm.offline import block_hasher, fix_hash_seed
from .release import PACKAGES, PADDING_BLOCK, Release, check_start, configure, load_release

BLOCK_SIZE = 64  # tokens; the hardware fixes this in every release
VOCABULARY_SIZE = 32_000  # the vocabulary size that the runner gets; no token is ever looked up

# --- the model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forward:
    """The input that the runner gave to the model in a step."""

    is_prefill: bool
    chunk_start: int  # for a prefill, the prompt tokens of the chunk, without padding
    chunk_end: int
    # For each row and each block position, the block that is written.
    slot_blocks: dict[str, list[int]]


class WeightlessModel:
    """A replacement for the model. It returns constant logits, and "samples" the tokens of the
    scenario."""

    is_multimodal = False

    def __init__(self, runner: Any, outputs: dict[str, Output]) -> None:
        self._runner = runner
        self._outputs = outputs
        self._rows: list[str] = []
        self.forward: Forward | None = None
        self._torch = importlib.import_module("torch")
        self._forward_context = importlib.import_module("vllm.forward_context")
        self._sampler_output = importlib.import_module("vllm.v1.outputs").SamplerOutput
        # Attributes of a model that the runners of any release read or write.
        self.model = self.fms_model = self
        self.config = SimpleNamespace(src_vocab_size=VOCABULARY_SIZE)
        self.vocab_size = VOCABULARY_SIZE
        self.indices: Any = None
        self.n_pads_right = 0
        self.past_key_value_states: list[Any] = []

    def set_past_key_value_states(self, num_blocks: int) -> None:
        """Do nothing: there is no KV cache to allocate."""

    def get_maybe_mm_embeddings(self, *_args: Any, **_options: Any) -> None:
        """Return None: the input consists of tokens, without embeddings."""

    def __call__(self, *, positions: Any, is_prompt: bool, **_inputs: Any) -> Any:
        batch = self._runner.prefill_batch if is_prompt else self._runner.input_batch
        self._rows = batch.sorted_requests_ids
        metadata = self._forward_context.get_forward_context().attn_metadata
        blocks = self._written(metadata.slot_mapping, is_prompt).tolist()
        # Padding has position 0, so the real tokens go from the first to the largest position.
        chunk = positions[0].tolist()
        self.forward = Forward(
            is_prefill=is_prompt,
            chunk_start=chunk[0],
            chunk_end=max(chunk) + 1,
            slot_blocks=dict(zip(self._rows, blocks, strict=True)),
        )
        # The logits are not used; a vocabulary of one token keeps them small.
        return self._torch.zeros((len(self._rows), 1))

    def _written(self, slots: Any, is_prompt: bool) -> Any:
        """Return, for each row and each block position, the block that is written.

        Each token has a slot, and the first slot of a position determines the block. If a token of
        a prompt is not at its own offset in that block, the result for this position is 0.
        """
        numbers = slots[:, ::BLOCK_SIZE] // BLOCK_SIZE
        if not is_prompt:
            return numbers
        offsets = self._torch.arange(slots.shape[1]) % BLOCK_SIZE
        in_place = (slots % BLOCK_SIZE == offsets).reshape(*numbers.shape, BLOCK_SIZE)
        return numbers * in_place.all(-1)

    def sample(self, logits: Any, sampling_metadata: Any) -> Any:
        sampled = [
            [self._outputs[row].token(len(self._runner.requests[row].output_token_ids))]
            for row in self._rows
        ]
        return self._sampler_output(
            sampled_token_ids=self._torch.tensor(sampled, dtype=self._torch.int32),
            logprobs_tensors=None,
        )


class WatchedLimit(int):
    """A limit on batch × tkv that stops nothing: `volume <= limit` is always true, and `exceeded`
    records whether it should have been false.

    The runner asserts this comparison before it calls the model. Python calls `__ge__` of the right
    operand first, because its class is a subclass of the left operand's class.
    """

    exceeded = False

    def __ge__(self, volume: int) -> bool:
        if not int.__ge__(self, volume):
            self.exceeded = True
        return True


# --- scheduler and runner -------------------------------------------------------------------


class SpyreEngine:
    """A fresh scheduler and model runner of the release for one configuration."""

    def __init__(self, release: Release, config: dict[str, Any]) -> None:
        self.release = release
        self.config = config
        self.outputs: dict[str, Output] = {}
        # The message of the runner's assertion, if it failed in the last step.
        self.broken_assertion: str | None = None
        self.start_up = check_start(release, config)
        self._vllm_config = configure(release, config)
        self._usable_blocks = config["num_blocks"] or plenty_of_blocks(config)
        self.runner = self._make_runner()
        self.scheduler = self._make_scheduler()
        self._hasher = block_hasher(self._vllm_config)
        self._request_class = importlib.import_module("vllm.v1.request").Request
        self._params_class = importlib.import_module("vllm.sampling_params").SamplingParams
        self._aborted = importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED

    @property
    def runner_owns_blocks(self) -> bool:
        """Whether the runner, rather than the scheduler, allocates the blocks (vllm-spyre 1.x)."""
        return hasattr(self.runner, "_set_blocks")

    @property
    def reserves_blocks(self) -> bool:
        return hasattr(self.scheduler, "total_reserved_blocks")

    @property
    def pauses(self) -> bool:
        return hasattr(self.scheduler, "paused_decoding_requests")

    def _make_runner(self) -> Any:
        runner = self.release.runner_class(
            vllm_config=self._vllm_config, is_driver_worker=True, rank=0
        )
        self.model = WeightlessModel(runner, self.outputs)
        runner._model = self.model
        runner.complete_warmup()
        if hasattr(runner, "_set_blocks"):
            runner._set_blocks(num_blocks=self._usable_blocks + PADDING_BLOCK)
        return runner

    def _make_scheduler(self) -> Any:
        interface = importlib.import_module("vllm.v1.kv_cache_interface")
        structured = importlib.import_module("vllm.v1.structured_output")
        num_blocks = self._usable_blocks + PADDING_BLOCK
        groups = [
            interface.KVCacheGroupSpec(layer_names=[layer], kv_cache_spec=spec)
            for layer, spec in self.runner.get_kv_cache_spec().items()
        ]
        # Set the size of the scheduler's pool directly. The platform would round
        # `num_gpu_blocks_override` to a multiple of the batch size, and it refuses small values.
        self._vllm_config.cache_config.num_gpu_blocks = num_blocks
        return self.release.scheduler_class(
            vllm_config=self._vllm_config,
            kv_cache_config=interface.KVCacheConfig(
                num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=structured.StructuredOutputManager(self._vllm_config),
            block_size=self._vllm_config.cache_config.block_size,
        )

    def add(self, request: CheckedRequest) -> None:
        try:
            params = self._params_class(
                max_tokens=request.max_tokens, temperature=0.0, detokenize=False
            )
            params.update_from_generation_config({}, EOS)
            inputs = {"type": "token", "prompt_token_ids": request.prompt}
            self.release.platform.validate_request(inputs, params)
        except ValueError as error:
            release = f"{self.release.name} {self.release.version}"
            raise RefusedError(f"{release} refuses the request: {error}") from error
        own = self._request_class(
            request_id=request.output.id,
            prompt_token_ids=request.prompt,
            sampling_params=params,
            pooling_params=None,
            priority=request.priority,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(own)
        self.outputs[request.output.id] = request.output

    def abort(self, request: str) -> bool:
        if request not in self.scheduler.requests:
            return False
        self.scheduler.finish_requests(request, self._aborted)
        return True

    def execute(self, decision: Any) -> Any:
        self.model.forward = None
        self.broken_assertion = None
        with self._watched_limit() as limit:
            output = self.runner.execute_model(decision)
        if limit.exceeded:
            self.broken_assertion = self._describe(decision, limit)
        if output is None:  # since 2.5, releases sample in a separate call
            output = self.runner.sample_tokens(self.scheduler.get_grammar_bitmask(decision))
        return output

    @contextlib.contextmanager
    def _watched_limit(self) -> Iterator[WatchedLimit]:
        watched = WatchedLimit(self.config["max_batch_tkv"])
        platform = self.release.platform
        if not hasattr(platform, "_max_batch_tkv_limit"):  # 1.x has no such assertion
            yield watched
            return
        real = platform._max_batch_tkv_limit
        platform._max_batch_tkv_limit = watched
        try:
            yield watched
        finally:
            platform._max_batch_tkv_limit = real

    def _describe(self, decision: Any, limit: int) -> str:
        tkv, batch = self.runner.tkv, len(decision.num_scheduled_tokens)
        return (
            f"{self.release.name} {self.release.version}: the runner's own assertion fails in "
            f"this step: tkv {tkv} x batch {batch} = {tkv * batch} > {limit:d}"
        )

    def blocks(self, request: str) -> list[int]:
        if self.runner_owns_blocks:
            held = self.runner.kv_cache_manager.req_to_blocks.get(request, ())
            return [block.block_id for block in held]
        block_ids: list[int] = self.scheduler.kv_cache_manager.get_block_ids(request)[0]
        return block_ids

    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def plenty_of_blocks(config: dict[str, Any]) -> int:
    """Return the size, in blocks, of a pool that is practically unbounded.

    The pool has room for a full batch and for as many paused requests. Further blocks make sure
    that a scenario never reuses a block with cached contents.
    """
    per_request: int = config["max_model_len"] // BLOCK_SIZE + 1
    return 2 * int(config["max_num_seqs"]) * per_request + 1024


KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "chunk_size": protocol_checks.POSITIVE,
    "max_num_seqs": protocol_checks.POSITIVE,
    "max_model_len": protocol_checks.POSITIVE,
    "max_batch_tkv": protocol_checks.POSITIVE,
    "interleave": protocol_checks.FLAG,
    "prefix_caching": protocol_checks.FLAG,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "pausing": protocol_checks.FLAG,
    "long_output_priority": protocol_checks.FLAG,
}
LONGEST_MODEL_LEN = 131072  # max_position_embeddings of the replaced model


class SpyreTarget(HostedTarget):
    """Serve the protocol's operations with the release on the path."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "spyre")
        check_config(config)
        release = load_release()
        check_options(release, config)
        engine = SpyreEngine(release, config)
        title = scheduler_class.title(release.name, release.version)
        observes = observed_fields(engine)
        described = (*title, observes, release.defaults, engine.start_up)
        return Hosted(engine, *described, overrides=release.overrides)

    def admit(self, engine: SpyreEngine, request: protocol_checks.CheckedRequest) -> None:
        check_admissible(engine, request.output.id, len(request.prompt), request.max_tokens)
        engine.add(request)

    def advance(self, engine: SpyreEngine) -> dict[str, Any]:
        decision = engine.scheduler.schedule()
        output = engine.execute(decision)
        if engine.broken_assertion:
            print(engine.broken_assertion, file=sys.stderr, flush=True)
        aborted = self.abort_inside(engine)
        completion = engine.scheduler.update_from_output(decision, output)
        return observe(engine, decision, completion, aborted)


# --- refusals -------------------------------------------------------------------------------


def check_config(config: dict[str, Any]) -> None:
    protocol_checks.check_keys(config, KEYS)
    if config["block_size"] != BLOCK_SIZE:
        raise protocol_checks.refuse("block_size", config["block_size"], f"{BLOCK_SIZE}")
    if config["chunk_size"] % BLOCK_SIZE:
        raise protocol_checks.refuse(
            "chunk_size", config["chunk_size"], f"a multiple of {BLOCK_SIZE}"
        )
    if config["max_model_len"] > LONGEST_MODEL_LEN:
        raise protocol_checks.refuse(
            "max_model_len", config["max_model_len"], f"1 to {LONGEST_MODEL_LEN}"
        )
    if config["max_num_seqs"] > config["chunk_size"]:
        raise protocol_checks.refuse(
            "max_num_seqs",
            config["max_num_seqs"],
            f"1 to chunk_size = {config['chunk_size']} (required by vLLM's configuration)",
        )


def check_options(release: Release, config: dict[str, Any]) -> None:
    """Refuse options that this release lacks, except `pausing`, which every `start` contains."""
    if config["long_output_priority"] and not release.has_option("LONG_OUT_PRIO"):
        lacks = f"false ({release.name} {release.version} has no such option)"
        raise protocol_checks.refuse("long_output_priority", True, lacks)


def check_admissible(engine: SpyreEngine, name: str, prompt: int, max_tokens: int) -> None:
    if name in engine.scheduler.requests:
        raise protocol_checks.RefusedError(
            f"refused by the protocol: a live request already has the id {name!r}"
        )
    if not prompt:
        raise protocol_checks.RefusedError("refused by the protocol: the prompt is empty")
    needed = prompt + max_tokens - 1
    blocks = -(-needed // BLOCK_SIZE)
    bounds = {
        "max_model_len": (needed, "prompt + max_tokens - 1"),
        "max_batch_tkv": (needed, "prompt + max_tokens - 1"),
        "num_blocks": (blocks, "blocks for prompt + max_tokens - 1"),
    }
    for key, (value, meaning) in bounds.items():
        bound = engine.config[key]
        if bound is not None and value > bound:
            raise protocol_checks.RefusedError(
                f"refused by the protocol: {meaning} = {value} > {key} = {bound}"
            )


# --- observation ----------------------------------------------------------------------------


def observed_fields(engine: SpyreEngine) -> list[str]:
    fields = ["emitted", "tkv", "left_pad_blocks", "waiting", "running", "prefilling"]
    fields += ["preempted", "finished", "computed", "blocks", "slot_blocks"]
    if engine.pauses:
        fields.append("paused")
    if engine.reserves_blocks:
        fields.append("reserved_blocks")
    if shows_free_blocks(engine):
        fields.append("free_blocks")
    if shows_prefix_hits(engine):
        fields.append("prefix_hit")
    return fields


# On 1.x, these fields would not have the meaning that the protocol gives them: the runner allocates
# blocks and frees them one step late, and the scheduler's count of computed tokens ignores prefix
# hits.


def shows_free_blocks(engine: SpyreEngine) -> bool:
    return engine.config["num_blocks"] is not None and not engine.runner_owns_blocks


def shows_prefix_hits(engine: SpyreEngine) -> bool:
    return engine.config["prefix_caching"] and not engine.runner_owns_blocks


def observe(
    engine: SpyreEngine, decision: Any, completion: Any, aborted: list[str]
) -> dict[str, Any]:
    scheduler = engine.scheduler
    kind = step_kind(engine, decision)
    held = {name: r for name, r in scheduler.requests.items() if r.num_computed_tokens}
    fields = {
        "kind": kind,
        "scheduled": scheduled_tokens(engine, decision, kind),
        "tkv": {"idle": None, "prefill": scheduler.tkv, "decode": engine.runner.tkv}[kind],
        "left_pad_blocks": {
            name: engine.runner.requests[name].padding_blocks
            for name in decision.num_scheduled_tokens
        },
        "slot_blocks": written_blocks(engine, decision, kind),
        "waiting": ids([*scheduler.waiting, *getattr(scheduler, "skipped_waiting", ())]),
        "running": ids(scheduler.running),
        "prefilling": ids(scheduler.ongoing_prefills),
        "preempted": sorted(decision.preempted_req_ids or ()),
        "computed": {name: r.num_computed_tokens for name, r in held.items()},
        "blocks": {name: engine.blocks(name) for name in held},
        **outputs(completion, aborted),
    }
    if engine.pauses:
        fields["paused"] = ids(scheduler.paused_decoding_requests)
    if engine.reserves_blocks:
        fields["reserved_blocks"] = scheduler.total_reserved_blocks
    if shows_free_blocks(engine):
        fields["free_blocks"] = engine.free_blocks()
    if shows_prefix_hits(engine):
        fields["prefix_hit"] = {name: hit_tokens(engine, name) for name in held}
    return fields


def step_kind(engine: SpyreEngine, decision: Any) -> str:
    if not decision.total_num_scheduled_tokens:
        return "idle"
    forward = engine.model.forward
    # 1.x does not run the model for a fully cached chunk
    return "prefill" if forward is None or forward.is_prefill else "decode"


def scheduled_tokens(engine: SpyreEngine, decision: Any, kind: str) -> dict[str, int]:
    """Return the number of real tokens that each request computes, in scheduling order.

    Up to release 2.3, the scheduler's own count includes the left padding of the first chunk, so
    count the tokens in the chunk that the runner prepared.
    """
    scheduled: dict[str, int] = dict(decision.num_scheduled_tokens)
    if kind != "prefill":
        return scheduled
    (request,) = scheduled
    forward = engine.model.forward
    if forward is None:
        return {request: 0}
    first = max(forward.chunk_start, hit_tokens(engine, request))
    return {request: max(0, forward.chunk_end - first)}


def hit_tokens(engine: SpyreEngine, request: str) -> int:
    """Return the number of tokens that were found in the prefix cache at admission, including those
    that cannot be used."""
    return int(engine.runner.requests[request].total_hit_blocks) * BLOCK_SIZE


def written_blocks(engine: SpyreEngine, decision: Any, kind: str) -> dict[str, list[int]]:
    if kind == "idle":
        return {}
    forward = engine.model.forward
    if forward is None:
        nothing = [0] * (engine.config["chunk_size"] // BLOCK_SIZE)
        return dict.fromkeys(decision.num_scheduled_tokens, nothing)
    return forward.slot_blocks


def main() -> None:
    fix_hash_seed()
    coverage.count_packages(*(f"{package}.v1.core" for package in PACKAGES))
    scheduler_class.load_early(load_release)
    serve(SpyreTarget())
