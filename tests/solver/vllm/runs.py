"""Requests and configurations of vLLM in which a request must give way."""

from schedproof.model.scenario import Request
from schedproof.model.systems import make_model

# Segments of the prompt, max_tokens, tokens until it ends, priority.
KINDS = {
    "short": ((("p", 1),), 3, 3, 0),
    "long": ((("p", 4),), 2, 2, 1),
    "own": ((("q", 2),), 4, 4, 0),
    "lowly": ((("s", 2),), 5, 5, 2),
    "goes on": ((("p", 2), ("out:r0", 1)), 2, 1, 1),
}
TRIPLES = [
    ("short", "long", "own"),
    ("long", "short", "short"),
    ("own", "own", "goes on"),
    ("long", "goes on", "own"),
]
CONFIGS = {
    "fcfs": {},
    "priority": {"policy": "priority"},
    "cache": {"enable_prefix_caching": True},
    "important cache": {"enable_prefix_caching": True, "policy": "priority"},
    "threshold": {"long_prefill_token_threshold": 2, "reserve_full_isl": False},
    "watermark": {"watermark": 0.3},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 6},
}


def requests(kinds):
    """One of each kind, in this order."""
    return [
        Request(
            id=f"r{number}",
            arrival=0,
            prompt=prompt,
            max_tokens=tokens,
            output_len=ends,
            priority=priority,
        )
        for number, (prompt, tokens, ends, priority) in enumerate(KINDS[kind] for kind in kinds)
    ]


def model_with(name, pool=4, block=2):
    """The model in this configuration, with blocks of two tokens."""
    config = {"block_size": block, "num_blocks": pool, "max_num_seqs": 3, "max_model_len": 8}
    config |= {"max_num_batched_tokens": 4, "enable_prefix_caching": False}
    return make_model("vllm", "documented", {**config, **CONFIGS[name]})
