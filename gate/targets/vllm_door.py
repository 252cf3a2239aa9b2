"""vLLM's own front door: what it refuses before its scheduler sees a request.

Two parts of it look at lengths: the server's check of prompt and max_tokens together, and the
engine's input processor. Neither needs a tokenizer where the prompt comes in tokens.
"""

import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .protocol_checks import CheckedRequest, RefusedError
    from .streams import EOS
    from .vllm_release import Release, cached_config
else:
    from protocol_checks import CheckedRequest, RefusedError
    from streams import EOS
    from vllm_release import Release, cached_config


def taken_in(release: Release, longest: int, asked: CheckedRequest, arrival: float) -> Any:
    """The request as vLLM hands it to its engine core.

    `longest`: max_model_len, in tokens; `arrival`: its place in the order of arrival.

    Raises:
        RefusedError: vLLM refuses it, in its own words.
    """
    params = importlib.import_module("vllm.sampling_params").SamplingParams(
        max_tokens=asked.max_tokens, temperature=0.0, detokenize=False
    )
    lengths = importlib.import_module("vllm.renderers.params").TokenizeParams
    prompt = {"type": "token", "prompt_token_ids": asked.prompt}
    refusal = importlib.import_module("vllm.exceptions").VLLMValidationError
    try:
        whole = lengths(max_total_tokens=longest, max_output_tokens=asked.max_tokens)
        whole.apply_post_tokenization(None, prompt)
        request = _processor(longest).process_inputs(
            asked.output.id,
            prompt,
            params,
            supported_tasks=("generate",),
            # Not the time of day: the order of arrival among equals must not depend on the clock.
            arrival_time=arrival,
            priority=asked.priority,
        )
    except (ValueError, refusal) as error:
        words = " ".join(str(error).split())
        raise RefusedError(f"refused by the front door of {release}: {words}") from error
    request.sampling_params.update_from_generation_config({}, EOS)
    return request


@functools.lru_cache(maxsize=64)
def _processor(longest: int) -> Any:
    """Made once for a length: it takes as long as hundreds of requests."""
    module = importlib.import_module("vllm.v1.engine.input_processor")
    return module.InputProcessor(cached_config(max_model_len=longest))
