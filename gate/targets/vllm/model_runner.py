"""vLLM's two model runners. For the second one, some of the scheduler's decisions differ.

Source: release 0.33.0: VllmConfig.use_v2_model_runner. An environment variable chooses the runner;
without it, the choice depends on what is installed.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any

from ..protocol_checks import refuse
from .in_flight import RUNNER, depth

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


def choose(release: Any, config: Mapping[str, Any]) -> bool:
    """Let vLLM use the model runner of the configuration from now on, and return whether it is the
    second one. Refuse the second one if the release has no option for it."""
    second = bool(config.get(RUNNER))
    if second:
        module: Any = importlib.import_module("vllm.config.vllm")
        if not hasattr(module.VllmConfig, RUNNER):
            raise refuse(RUNNER, True, f"false ({release} has no VllmConfig.{RUNNER})")
        module.HAS_TRITON = True  # as if on a GPU; the runner itself is replaced
    os.environ[VARIABLE] = str(int(second))
    return second


def check(release: Any, config: Mapping[str, Any], vllm_config: Any) -> None:
    """Refuse the second model runner if the release does not keep as many decisions in flight as
    the configuration says."""
    if config.get(RUNNER) and (most := vllm_config.max_concurrent_batches) != depth(config):
        valid = f"false ({release} has {most} decisions in flight, not {depth(config)})"
        raise refuse(RUNNER, True, valid)
