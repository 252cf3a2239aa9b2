"""The reference model: vLLM's scheduler, of which this system asks less than its own rules do."""

from collections.abc import Mapping
from typing import Any

from ..systems import Reference
from ..vllm.config import read_config as read_vllm_config
from ..vllm.model import VllmModel
from .config import as_vllm, read_config


def make_model(revision: str, config: Mapping[str, Any]) -> VllmModel:
    """The model of one configuration.

    Raises:
        InputError: an impossible configuration.
    """
    return VllmModel(read_vllm_config(as_vllm(read_config(config, revision)), "documented"))


REFERENCE = Reference(read_config, make_model)
