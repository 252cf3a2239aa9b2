"""Releases of vLLM as targets, each in a process that all tests of a worker share."""

from dataclasses import dataclass
from typing import Any

import pytest

from schedproof.gate.targets import releases
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.gate.targets.vllm.releases import EXAMINED

from ..served import Served

Config = dict[str, Any]

SUPPORTED = EXAMINED
RELEASES = (SUPPORTED[0], "0.28.0", SUPPORTED[-1])
CONFIG: Config = {
    "block_size": 4,
    "num_blocks": 12,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 16,
    "max_model_len": 40,
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "policy": "fcfs",
    "watermark": 0.0,
    "reserve_full_isl": True,
}


@dataclass(frozen=True)
class Vllm(Served):
    """A release of vLLM."""

    version: str

    def start(self, **changes):
        """Start with a max_model_len that the pool can hold, unless one is given."""
        config = CONFIG | changes
        if config["num_blocks"] and "max_model_len" not in changes:
            whole = config["num_blocks"] * config["block_size"]
            config["max_model_len"] = min(config["max_model_len"], whole)
        return self.pipe.start("vllm", "documented", config)


# The release that the model follows is quick to start beside the others.
@pytest.fixture(
    scope="session",
    params=[
        pytest.param(release, marks=() if release == RELEASES[1] else pytest.mark.slow)
        for release in RELEASES
    ],
)
def vllm(request):
    release = parse_release(f"vllm=={request.param}")
    assert release is not None
    try:
        prepared = releases.prepare(release, offline=True)
    except ReleaseError as error:
        pytest.skip(str(error))
    with PipeTarget(prepared.command, env=prepared.env) as pipe:
        yield Vllm(pipe, request.param)
