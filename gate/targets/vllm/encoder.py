"""Encoder inputs: the parts of a prompt that an encoder computes, in vLLM's form of image
placeholders.

No model with an encoder is loaded. The configuration gives the encoder's budget and the size of its
cache. Both must be values that vLLM would derive for some model.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from ..protocol_checks import CheckedRequest, RefusedError, refuse

BUDGET, ROOM = KEYS = ("max_num_encoder_input_tokens", "encoder_cache_size")


def check(config: Mapping[str, Any]) -> None:
    """Refuse an encoder if only one of its two keys is set."""
    for key, other in (KEYS, KEYS[::-1]):
        if config.get(other) and not config.get(key):
            raise refuse(key, config.get(key, 0), f"at least 1: {other} is {config[other]}")


def check_derived(release: Any, config: Mapping[str, Any], vllm_config: Any) -> None:
    """Refuse a budget or a cache size that vLLM would not derive for any model, because vLLM has no
    option for either of them."""
    if not config.get(BUDGET):
        return
    module = importlib.import_module("vllm.v1.core.encoder_cache_manager")
    largest = longest_input(config)
    derived = module.compute_mm_encoder_budget(vllm_config.scheduler_config, {"image": largest})
    for key, value in zip(KEYS, derived, strict=True):
        if config[key] != value:
            raise refuse(
                key,
                config[key],
                f"{value}: {release} derives it (compute_mm_encoder_budget) from "
                f"max_num_batched_tokens {config['max_num_batched_tokens']} and an input of "
                f"{largest} tokens",
            )


def longest_input(config: Mapping[str, Any]) -> int:
    """Return the length, in tokens, of the longest input that fits the budget and the cache."""
    return int(min(config.get(BUDGET, 0), config.get(ROOM, 0)))


def equip(scheduler: Any, config: Mapping[str, Any]) -> None:
    if not config.get(BUDGET):
        return
    module = importlib.import_module("vllm.v1.core.encoder_cache_manager")
    scheduler.max_num_encoder_input_tokens = config[BUDGET]
    scheduler.encoder_cache_manager = module.EncoderCacheManager(cache_size=config[ROOM])


def features(config: Mapping[str, Any], request: CheckedRequest) -> list[Any]:
    """Return the encoder inputs of a request in vLLM's form. Refuse an input that no step could
    compute, as vLLM's input processor would for a known model."""
    inputs = importlib.import_module("vllm.multimodal.inputs")
    specs, longest = [], longest_input(config)
    for segment in request.inputs:
        if segment.length > longest:
            raise RefusedError(
                f"an encoder input of {segment.length} tokens exceeds "
                f"{BUDGET} ({config.get(BUDGET, 0)}) or {ROOM} ({config.get(ROOM, 0)})"
            )
        place = inputs.PlaceholderRange(offset=segment.start, length=segment.length)
        specs.append(
            inputs.MultiModalFeatureSpec(
                # Nothing reads the data; a release sends it to its workers or leaves it out.
                data={},
                modality="image",
                identifier=segment.stream,
                mm_position=place,
            )
        )
    return specs


def encoder_fields(decision: Any, numbers: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "encoder_inputs": {
            name: sorted(numbers[name][place] for place in places)
            for name, places in decision.scheduled_encoder_inputs.items()
        },
        "encoder_dropped": list(decision.free_encoder_mm_hashes),
    }
