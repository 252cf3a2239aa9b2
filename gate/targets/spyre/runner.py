"""Run the release's scheduler and its model runner around a model without weights.

Everything that decides, pads, allocates and counts is the release's own code. Only the model is
replaced: it returns constant logits, and "samples" the tokens that the scenario prescribes.
"""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ..protocol_checks import CheckedRequest, RefusedError
from ..streams import EOS, Output
from ..vllm.offline import block_hasher
from .release import PADDING_BLOCK, Release, check_start, configure

BLOCK_SIZE = 64  # tokens; fixed by the hardware in every release
VOCABULARY_SIZE = 32_000  # the vocabulary size that the runner is told; no token is looked up

# --- the model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forward:
    """The input that the runner handed to the model in a step."""

    is_prefill: bool
    chunk_start: int  # prefill: the prompt tokens of the chunk, padding left out
    chunk_end: int
    slot_blocks: dict[str, list[int]]  # per row: the block written at each block position


class WeightlessModel:
    """A stand-in for the model, with constant logits and the tokens that the scenario
    prescribes."""

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
        """Return None: there are only tokens, no embeddings."""

    def __call__(self, *, positions: Any, is_prompt: bool, **_inputs: Any) -> Any:
        batch = self._runner.prefill_batch if is_prompt else self._runner.input_batch
        self._rows = batch.sorted_requests_ids
        metadata = self._forward_context.get_forward_context().attn_metadata
        # There is a slot for each token; the first slot at each block position gives the block.
        blocks = (metadata.slot_mapping[:, ::BLOCK_SIZE] // BLOCK_SIZE).tolist()
        # Padding has position 0, so the first and the greatest position bound the real tokens.
        chunk = positions[0].tolist()
        self.forward = Forward(
            is_prefill=is_prompt,
            chunk_start=chunk[0],
            chunk_end=max(chunk) + 1,
            slot_blocks=dict(zip(self._rows, blocks, strict=True)),
        )
        # The logits are not used; a vocabulary of one keeps them cheap.
        return self._torch.zeros((len(self._rows), 1))

    def sample(self, logits: Any, sampling_metadata: Any) -> Any:
        """Return the next token of each row's request, according to the runner's own request
        state."""
        sampled = [
            [self._outputs[row].token(len(self._runner.requests[row].output_token_ids))]
            for row in self._rows
        ]
        return self._sampler_output(
            sampled_token_ids=self._torch.tensor(sampled, dtype=self._torch.int32),
            logprobs_tensors=None,
        )


class WatchedLimit(int):
    """A batch-tkv limit that records when `volume <= limit` fails, but always answers that it
    holds.

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
        self.broken_assertion: str | None = None  # the runner's assertion that the last step broke
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
        """Return whether the runner allocates the blocks and the scheduler has none (vllm-spyre
        1.x)."""
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
        # Set the size of the scheduler's pool. The platform rounds `num_gpu_blocks_override` to a
        # multiple of the batch size, and refuses small values.
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
        """Queue a request through the release's own front door."""
        try:
            params = self._params_class(
                max_tokens=request.max_tokens, temperature=0.0, detokenize=False
            )
            params.update_from_generation_config({}, EOS)
            inputs = {"type": "token", "prompt_token_ids": request.prompt}
            self.release.platform.validate_request(inputs, params)
        except ValueError as error:
            release = f"{self.release.name} {self.release.version}"
            raise RefusedError(f"refused by the front door of {release}: {error}") from error
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
        """End a request at once; return False if the scheduler does not know it."""
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
        if output is None:  # since 2.5, releases sample in a second call
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
    """Return the size of a pool that stands for an unbounded one. It holds a full batch and as many
    paused requests, and so much room that a scenario never reuses a block with cached contents."""
    per_request: int = config["max_model_len"] // BLOCK_SIZE + 1
    return 2 * int(config["max_num_seqs"]) * per_request + 1024
