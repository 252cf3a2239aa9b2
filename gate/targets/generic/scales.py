"""The configurations in which targets of the generic system are judged."""

from ..scales import POOL, GateScales

WINDOW = [{"kind": "full"}, {"kind": "sliding_window", "window": 16, "num_blocks": 64}]
SCALES = GateScales(
    scales={"small": {"block_size": 2}, "short": {"block_size": 16}, "tight": {"block_size": 16}},
    plain={
        "num_blocks": None,
        "max_num_seqs": None,
        "max_num_batched_tokens": None,
        "max_model_len": None,
        "enable_chunked_prefill": False,
        "enable_prefix_caching": False,
        "order": "any",
    },
    features=(
        POOL,
        {"max_num_seqs": 4},
        {"max_num_batched_tokens": 64},
        {"max_model_len": 64},
        {"enable_chunked_prefill": True},
        {"enable_prefix_caching": True},
        {"order": "fcfs"},
        {"order_by_priority": True, "order": "any"},
        {"async_scheduling": True},
        {"pipeline_parallel_size": 2},
        {"early_completions": 1, "pipeline_parallel_size": 2},
        {"early_completions": 1, "async_scheduling": True},
        {"num_speculative_tokens": 2},
        {"kv_groups": WINDOW, **POOL},
        {"kv_connector": True},
        {"kv_load_failure_policy": "fail", "kv_connector": True},
    ),
    chunk_key="max_num_batched_tokens",
)
