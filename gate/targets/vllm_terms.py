"""A scheduler of vLLM and its requests, in the terms of the scenario format."""

from typing import Any

NULL_BLOCK = 1  # one block of vLLM's pool is never given to a request
MANAGER = "FullAttentionManager"
# What makes a request wait, or share blocks, for reasons that no scenario has: the attribute of the
# request, and the words for a user.
NOT_TOLD = {
    "structured_output_request": "waits for a grammar",
    "lora_request": "needs an adapter",
    "mm_features": "has images or sound",
    "pooling_params": "asks for no tokens",
    "resumable": "goes on when more of it comes",
}


class RecordEnds(Exception):  # noqa: N818 (not an error of the server's)
    """What happens cannot be said in a trace; `str()` is the reason."""


def request_of(request: Any) -> dict[str, Any]:
    """A request without its prompt.

    Raises:
        RecordEnds: it has what no scenario can say.
    """
    for attribute, words in NOT_TOLD.items():
        if getattr(request, attribute, None):
            raise RecordEnds(f"{request.request_id} {words}")
    return {
        "id": request.request_id,
        "max_tokens": request.max_tokens,
        "priority": request.priority,
    }


def config_of(scheduler: Any) -> dict[str, Any]:
    """The configuration of a scheduler, in the terms of the scenario format.

    Raises:
        RecordEnds: it has what no scenario can say.
    """
    vllm_config, options = scheduler.vllm_config, scheduler.scheduler_config
    if vllm_config.kv_transfer_config is not None:
        raise RecordEnds("what a KV connector loads is not known here")
    block_size = vllm_config.cache_config.block_size
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    known = [type(one).__name__ == MANAGER and one.block_size == block_size for one in managers]
    if known != [True]:
        kinds = ", ".join(f"{type(one).__name__} ({one.block_size})" for one in managers)
        raise RecordEnds(f"blocks are kept by {kinds}, and not by one {MANAGER} ({block_size})")
    stages = vllm_config.parallel_config.pipeline_parallel_size
    drafts = getattr(scheduler, "num_spec_tokens", 0)
    if drafts and getattr(options, "async_scheduling", False):
        raise RecordEnds("which drafts are right is not known yet when others are decided ahead")
    usual = {
        "async_scheduling": (bool(getattr(options, "async_scheduling", False)), False),
        "pipeline_parallel_size": (stages, 1),
        "num_speculative_tokens": (drafts, 0),
        "num_lookahead_tokens": (getattr(scheduler, "num_lookahead_tokens", 0), 0),
    }
    return {
        "block_size": block_size,
        "num_blocks": scheduler.kv_cache_manager.block_pool.num_gpu_blocks - NULL_BLOCK,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": vllm_config.model_config.max_model_len,
        "long_prefill_token_threshold": options.long_prefill_token_threshold,
        "enable_chunked_prefill": bool(options.enable_chunked_prefill),
        "enable_prefix_caching": bool(vllm_config.cache_config.enable_prefix_caching),
        "policy": options.policy,
        "watermark": getattr(options, "watermark", 0.0),
        "reserve_full_isl": getattr(options, "scheduler_reserve_full_isl", False),
        **{key: value for key, (value, nothing) in usual.items() if value != nothing},
    }
