"""Parts of a prompt that an encoder computes, as vLLM has them: placeholders of pictures.

No model with an encoder is loaded: what vLLM would derive from it, its budget and the size of its
cache, comes from the configuration.
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
    specs, longest = [], min(config.get(BUDGET, 0), config.get(ROOM, 0))
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
