"""The reference model: vLLM's scheduler, of which this system asks less than its own rules do.

The rules of every system (ALL-Rnn) are named there. Where it keeps its own: GEN-R01 in
`vllm.scheduler.clamp`; GEN-R02, GEN-R04 and GEN-R10 in `admit_waiting`; GEN-R08 in `complete`;
GEN-R09 in `carry_out` and `preempt`; GEN-R05 in `vllm.kv_cache.hold`; GEN-R06 and GEN-R07 in
`allocator`; GEN-R03 in `VllmModel.refusal`.
"""

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
