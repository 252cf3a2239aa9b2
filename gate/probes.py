"""What a gate asks of a target before it searches: which scales does it take, what does it show?"""

from collections.abc import Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]

SCALES = ("small", "short", "tight")
# May blocks be this small? Lengths in tokens.
PROBES: Mapping[str, Mapping[str, Config]] = {
    "spyre": {
        "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "short": {"chunk_size": 128, "max_model_len": 256, "max_batch_tkv": 768},
        "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
    },
    "vllm": {
        "small": {"block_size": 2, "max_num_seqs": 4, "max_model_len": 16},
        "short": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 64},
        "tight": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 256},
    },
    "nano_vllm": {
        "small": {"block_size": 2, "num_blocks": 8, "max_num_seqs": 4},
        "short": {"block_size": 16, "num_blocks": 8, "max_num_seqs": 4},
        "tight": {"block_size": 256, "num_blocks": 8, "max_num_seqs": 4},
    },
    "llmservingsim": {
        "small": {"block_size": 2, "max_num_seqs": 4, "num_blocks": 8},
        "short": {"block_size": 16, "max_num_seqs": 4, "num_blocks": 8},
        "tight": {"block_size": 16, "max_num_seqs": 4, "num_blocks": 32},
    },
}
# What a target shows once there is a prefix cache, or a pool (this one is large enough for
# releases that reserve nothing).
OPTIONS: Mapping[str, Sequence[Config]] = {
    "spyre": ({}, {"prefix_caching": True}, {"num_blocks": 64}),
    "vllm": ({}, {"enable_prefix_caching": False}, {"num_blocks": 64}),
    "nano_vllm": ({},),
    "llmservingsim": ({}, {"enable_prefix_caching": False}, {"num_blocks": 64}),
}
