"""Read vLLM's configurations from the scenario format. Refuse those with which no server starts,
and those that are not modelled."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from ..config import convert
from ..errors import InputError
from .parameters import NULL_BLOCK, KvGroup, VllmConfig

__all__ = [
    "NEUTRAL",
    "NULL_BLOCK",
    "SAYING_NOTHING",
    "KvGroup",
    "VllmConfig",
    "in_effect",
    "read_config",
]

# These keys are absent at their defaults, so targets without the features never see them.
SAYING_NOTHING = {
    "num_speculative_tokens": 0,
    "num_lookahead_tokens": 0,
    "num_speculative_tokens_per_batch_size": None,
    "async_scheduling": False,
    "pipeline_parallel_size": 1,
    "early_completions": 0,
    "use_v2_model_runner": False,
    "kv_connector": False,
    "kv_load_failure_policy": "recompute",
    "synchronous_loads": False,
    "max_num_encoder_input_tokens": 0,
    "encoder_cache_size": 0,
    "kv_groups": [{"kind": "full"}],
    "prefix_cache_retention_interval": None,
    "mamba_cache_mode": "none",
    "prefix_match_unit": None,
    "cache_partitions": False,
    "max_loras": None,
    "structured_outputs": False,
    "reused_ids": False,
    "streaming_inputs": False,
    "max_num_active_seqs": None,
    "long_prefill_token_threshold_adaptive": False,
    "disable_chunked_mm_input": False,
    "prefill_schedule_interval": 1,
    "kv_cache_events": "none",
}


def read_config(values: Mapping[str, Any], revision: str) -> VllmConfig:
    config = convert(in_effect(values, SAYING_NOTHING), VllmConfig)
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise InputError(
            "$.config.max_num_batched_tokens",
            f"{config.max_num_batched_tokens} is less than max_num_seqs ({config.max_num_seqs}): "
            f"not every request could decode; valid: at least {config.max_num_seqs}",
        )
    if config.long_prefill_token_threshold > config.max_model_len:
        raise InputError(
            "$.config.long_prefill_token_threshold",
            f"{config.long_prefill_token_threshold} exceeds max_model_len "
            f"({config.max_model_len}); valid: 0 to {config.max_model_len}",
        )
    _check(config)
    return config


def in_effect(values: Mapping[str, Any], neutral: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without those that have no effect, which `neutral` lists."""

    def says_nothing(key: str, value: Any) -> bool:
        nothing = neutral.get(key, UNSET)
        return value is UNSET or (bool(value == nothing) and type(value) is type(nothing))

    return {key: value for key, value in values.items() if not says_nothing(key, value)}


def _check(config: VllmConfig) -> None:
    _check_speculation(config)
    _check_dynamic_drafts(config)
    _check_in_flight(config)
    _check_encoder(config)
    _check_groups(config)
    _check_mamba(config)
    _check_grammars(config)
    _check_sessions(config)
    _check_adapters(config)
    _check_limits(config)
    if config.loads_in_step and not config.loads:
        problem = "true without a kv_connector; valid: false, or kv_connector true"
        raise InputError("$.config.synchronous_loads", problem)
    if config.reused_ids is True and config.loads:
        problem = "true with a kv_connector is not modelled; valid: false, or no kv_connector"
        raise InputError("$.config.reused_ids", problem)


def _check_speculation(config: VllmConfig) -> None:
    path = "$.config.num_lookahead_tokens"
    if config.lookahead not in (0, config.drafts):
        valid = f"0, or num_speculative_tokens ({config.drafts})"
        raise InputError(path, f"{config.lookahead} fits no drafter; valid: {valid}")
    if config.lookahead >= config.max_num_batched_tokens:
        raise InputError(
            path,
            f"{config.lookahead} leaves nothing of max_num_batched_tokens "
            f"({config.max_num_batched_tokens}); valid: a smaller number",
        )


def _check_dynamic_drafts(config: VllmConfig) -> None:
    ranges = config.num_speculative_tokens_per_batch_size
    if ranges is UNSET or ranges is None:
        return
    path, ends = "$.config.num_speculative_tokens_per_batch_size", 0
    others = {
        "no num_speculative_tokens": not config.drafts,
        "a pipeline": (config.pipeline_parallel_size or 1) > 1,
        "a kv_connector": config.loads,
    }
    _refuse_beside(path, "a list", others, "null")
    for number, (first, last, _) in enumerate(ranges):
        if not ends < first <= last or (number == 0 and first > 1):
            valid = "1" if number == 0 else f"more than {ends}, and at most {last}"
            raise InputError(f"{path}[{number}][0]", f"{first}; valid: {valid}")
        ends = last
    if not ranges:
        raise InputError(path, "is empty; valid: null, or a list that begins with batch size 1")


def _check_in_flight(config: VllmConfig) -> None:
    if config.early and config.depth == 1:
        raise InputError(
            "$.config.early_completions",
            f"{config.early} needs several decisions in flight; valid: 0, or async_scheduling, or "
            "a pipeline_parallel_size of at least 2",
        )
    if config.drafts and config.decides_ahead and config.lookahead != config.drafts:
        raise InputError(
            "$.config.num_lookahead_tokens",
            f"{config.lookahead} with async_scheduling: vLLM decides ahead only with a drafter "
            "that has keys and values of its own (EAGLE); "
            f"valid: {config.drafts}, or async_scheduling false",
        )


def _check_encoder(config: VllmConfig) -> None:
    if bool(config.encoder_budget) != bool(config.encoder_room):
        first, other = "encoder_cache_size", "max_num_encoder_input_tokens"
        if config.encoder_room:
            first, other = other, first
        raise InputError(
            f"$.config.{first}",
            f"0 with {other} {getattr(config, other)}: an encoder needs both; valid: at least 1, "
            f"or no {other}",
        )


def check_begins_with_full(path: str, kinds: Sequence[str]) -> None:
    """Raise InputError unless the first group of the KV cache is full attention."""
    if not kinds or kinds[0] != "full":
        first = f"begins with {kinds[0]}" if kinds else "is empty"
        raise InputError(path, f"{first}; valid: a list that begins with a full group")


def _check_groups(config: VllmConfig) -> None:
    if interval := config.prefix_cache_retention_interval:
        path, unit = "$.config.prefix_cache_retention_interval", config.hit_unit
        if config.has_mamba and not config.enable_prefix_caching:
            unit = math.lcm(unit, config.max_model_len)  # a state is one block
        kinds = {group.kind for group in config.more_groups}
        if interval % unit or not kinds & {"sliding_window", "mamba"}:
            valid = f"0, null or, with a sliding_window or mamba group, a multiple of {unit}"
            raise InputError(path, f"{interval}; valid: {valid}")
    if config.kv_groups is UNSET:
        return
    path = "$.config.kv_groups"
    check_begins_with_full(path, [group.kind for group in config.kv_groups])
    kinds = {group.kind for group in config.kv_groups}
    alike = all(config.size_of(group) == config.block_size for group in config.more_groups)
    if config.more_groups and kinds == {"full"} and alike:
        problem = f"{len(config.kv_groups)} full groups: vLLM merges them into one"
        raise InputError(path, f"{problem}; valid: another kind after the first group")
    for number, group in enumerate(config.kv_groups):
        given = "no window" if group.window is UNSET else f"window {group.window}"
        window, size, valid = group.window or 0, config.size_of(group), ""
        if group.kind == "sliding_window" and window < 2:
            valid = "at least 2 tokens"
        if group.kind == "chunked_local" and (not window or window % size):
            valid = f"a multiple of block_size ({size})"
        if group.kind in ("full", "mamba", "circular_buffer") and window:
            valid = "absent"
        if valid:
            problem = f"{group.kind} with {given}; valid: {valid}"
            raise InputError(f"{path}[{number}].window", problem)
        needed, why = size, ""
        if number == 0:
            needed, why = config.block_size, "is not the block_size of the configuration"
        elif "mamba" in kinds:
            needed, why = config.block_size, "together with a mamba group is not modelled"
        elif group.kind == "chunked_local" and config.enable_prefix_caching:
            # vLLM asserts this (ChunkedLocalAttentionManager.find_longest_cache_hit).
            needed, why = config.hit_unit, "is less than the hits of the other groups need"
        if size != needed:
            raise InputError(f"{path}[{number}].block_size", f"{size} {why}; valid: {needed}")
        if group.kind == "chunked_local" and config.lookahead and config.enable_prefix_caching:
            # vLLM asserts this, too, before release 0.33.
            problem = "chunked_local with num_lookahead_tokens and prefix caching is not modelled"
            raise InputError(f"{path}[{number}].kind", f"{problem}; valid: another kind")
    others = {
        "pipeline_parallel_size": (config.pipeline_parallel_size or 1) > 1,
        "synchronous_loads": config.loads_in_step,
        "kv_connector and num_lookahead_tokens": config.loads and config.lookahead > 0,
        "kv_connector together with a circular_buffer": config.loads and "circular_buffer" in kinds,
    }
    for key, is_on in others.items():
        if config.more_groups and is_on:
            problem = f"{len(config.kv_groups)} groups with {key} are not modelled"
            raise InputError(path, f"{problem}; valid: one group, or no {key}")


def _check_mamba(config: VllmConfig) -> None:
    if config.has_mamba and config.loads:
        problem = "true with a mamba group is not modelled; valid: false, or no mamba group"
        raise InputError("$.config.kv_connector", problem)
    if config.has_mamba and config.encoder_room:
        problem = f"{config.encoder_room} with a mamba group is not modelled"
        raise InputError("$.config.encoder_cache_size", f"{problem}; valid: 0, or no mamba group")
    most = 0 if config.leaves_every_state else config.block_size - 1
    if config.caches_states and config.drafts > most:
        problem = f"{config.drafts} drafts with a mamba group"
        if config.leaves_every_state:
            problem += " and mamba_cache_mode all are not modelled"
        else:
            problem += f" and prefix caching are not modelled for blocks of {config.block_size}"
        raise InputError("$.config.num_speculative_tokens", f"{problem}; valid: at most {most}")
    mode = config.mamba_cache_mode
    if mode and not config.caches_states:
        missing = "a mamba group" if config.enable_prefix_caching else "prefix caching"
        raise InputError(
            "$.config.mamba_cache_mode", f"{mode} without {missing}; valid: none, or {missing}"
        )
    if unit := config.prefix_match_unit or 0:
        kinds = {group.kind for group in config.more_groups}
        others = {
            "no mamba group and prefix cache": not config.caches_states,
            "mamba_cache_mode all": config.leaves_every_state,
            "a group of another kind": not kinds <= {"mamba", "circular_buffer"},
            "drafts": config.drafts > 0,
        }
        path = "$.config.prefix_match_unit"
        _refuse_beside(path, str(unit), others, "null")
        if config.block_size % unit:
            valid = f"a divisor of block_size ({config.block_size}), or null"
            raise InputError(path, f"{unit}; valid: {valid}")
    aligns = config.caches_states and not config.leaves_every_state
    if aligns and not config.enable_chunked_prefill:
        raise InputError(
            "$.config.enable_chunked_prefill",
            "false with a mamba group and prefix caching: vLLM needs chunks that end at block "
            "boundaries; valid: true, or enable_prefix_caching false",
        )


def _check_grammars(config: VllmConfig) -> None:
    if config.has_grammars and config.loads:
        problem = "true with kv_connector true is not modelled; valid: false, or no kv_connector"
        raise InputError("$.config.structured_outputs", problem)


def _check_sessions(config: VllmConfig) -> None:
    others = {
        "kv_connector": config.loads,
        "num_speculative_tokens": config.drafts > 0,
        "pipeline_parallel_size": (config.pipeline_parallel_size or 1) > 1,
        "encoder_cache_size": config.encodes,
        "kv_groups": bool(config.more_groups),
        'policy "priority"': config.policy == "priority",
    }
    if config.has_sessions:
        _refuse_beside("$.config.streaming_inputs", "true", others, "false, or no {}")


def _check_adapters(config: VllmConfig) -> None:
    others = {
        "cache_partitions false": config.cache_partitions is not True,
        "a kv_connector": config.loads,
        "structured_outputs": config.has_grammars,
        "several decisions in flight": config.depth > 1,
        "an encoder": config.encodes,
    }
    if config.max_loras:
        _refuse_beside("$.config.max_loras", str(config.max_loras), others, "null")


def _check_limits(config: VllmConfig) -> None:
    if config.slots > config.max_num_seqs:
        problem = f"{config.slots} exceeds max_num_seqs ({config.max_num_seqs})"
        valid = f"1 to {config.max_num_seqs}, or null"
        raise InputError("$.config.max_num_active_seqs", f"{problem}; valid: {valid}")
    others = {
        "the priority policy": config.policy == "priority",
        "a kv_connector": config.loads,
        "structured_outputs": config.has_grammars,
        "streaming_inputs": config.has_sessions,
        "an encoder": config.encodes,
        "max_loras": bool(config.max_loras),
    }
    if config.holds_prefills:
        value = str(config.prefill_interval)
        _refuse_beside("$.config.prefill_schedule_interval", value, others, "1")
    if config.disable_chunked_mm_input is not True:
        return
    if not config.encodes or config.longest_input > config.max_num_batched_tokens:
        valid = "false, or an encoder whose longest input fits into max_num_batched_tokens"
        problem = f"true with inputs of up to {config.longest_input} tokens and a budget of "
        problem += f"{config.max_num_batched_tokens}"
        raise InputError("$.config.disable_chunked_mm_input", f"{problem}; valid: {valid}")


def _refuse_beside(path: str, value: str, others: Mapping[str, bool], valid: str) -> None:
    """Refuse a value that cannot be combined with another option. `others` maps each option to
    whether it is on. The error names the first option that is on; so does `valid`, in place of {}.
    """
    for other, is_on in others.items():
        if is_on:
            problem = f"{value} with {other} is not modelled; valid: {valid.format(other)}"
            raise InputError(path, problem)


# For each key, the value that has no effect, for comparisons with systems that lack the key.
NEUTRAL: Mapping[str, Any] = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "policy": "fcfs",
    "watermark": 0.0,
    # the other revisions always require that the whole prompt fits
    "reserve_full_isl": True,
    **SAYING_NOTHING,
}
