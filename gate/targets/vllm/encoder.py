"""Parts of a prompt that an encoder computes, as vLLM has them: placeholders of pictures.

No model with an encoder is loaded. Budget and cache size come from the configuration, and have to
be what vLLM derives for some model.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from ..protocol_checks import CheckedRequest, RefusedError, refuse

BUDGET, ROOM = KEYS = ("max_num_encoder_input_tokens", "encoder_cache_size")


def check(config: Mapping[str, Any]) -> None:
    """Refuse half of an encoder, and a drafter that reads ahead of it; raises RefusedError."""
    for key, other in (KEYS, KEYS[::-1]):
        if config.get(other) and not config.get(key):
            raise refuse(key, config.get(key, 0), f"at least 1: {other} is {config[other]}")
    if config.get(BUDGET) and config.get("num_lookahead_tokens"):
        raise refuse("num_lookahead_tokens", config["num_lookahead_tokens"], "0 with an encoder")


def check_derived(release: Any, config: Mapping[str, Any], vllm_config: Any) -> None:
    """Refuse a budget or a cache size that no model gives: neither is an option of vLLM.

    Raises:
        RefusedError: vLLM derives another one.
    """
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
    """Tokens of the largest input that can be computed and kept."""
    return int(min(config.get(BUDGET, 0), config.get(ROOM, 0)))


def equip(scheduler: Any, config: Mapping[str, Any]) -> None:
    if not config.get(BUDGET):
        return
    module = importlib.import_module("vllm.v1.core.encoder_cache_manager")
    scheduler.max_num_encoder_input_tokens = config[BUDGET]
    scheduler.encoder_cache_manager = module.EncoderCacheManager(cache_size=config[ROOM])


def features(config: Mapping[str, Any], request: CheckedRequest) -> list[Any]:
    """The encoder inputs of a request, as vLLM has them; raises RefusedError for one that no step
    can compute, which vLLM's input processor refuses where it knows the model."""
    inputs = importlib.import_module("vllm.multimodal.inputs")
    specs, longest = [], longest_input(config)
    for segment in request.inputs:
        if segment.length > longest:
            raise RefusedError(
                f"an encoder input of {segment.length} tokens is beyond "
                f"{BUDGET} or {ROOM} ({longest})"
            )
        place = inputs.PlaceholderRange(offset=segment.start, length=segment.length)
        specs.append(
            inputs.MultiModalFeatureSpec(
                data=None, modality="image", identifier=segment.stream, mm_position=place
            )
        )
    return specs


def seen(decision: Any, numbers: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What is seen of the encoder in a decision; `numbers` are the segments of each request that
    come from it."""
    return {
        "encoder_inputs": {
            name: sorted(numbers[name][place] for place in places)
            for name, places in decision.scheduled_encoder_inputs.items()
        },
        "encoder_dropped": list(decision.free_encoder_mm_hashes),
    }
