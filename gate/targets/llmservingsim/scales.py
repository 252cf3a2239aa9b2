"""The configurations that targets of LLMServingSim are judged in."""

from ..scales import POOL, GateScales

SCALES = GateScales(
    scales={
        "small": {"block_size": 2, "max_num_seqs": 4},
        "short": {"block_size": 16, "max_num_seqs": 4},
        "tight": {"block_size": 16, "max_num_seqs": 4},
    },
    plain={"enable_prefix_caching": False, "num_blocks": None},
    features=(
        {"enable_prefix_caching": True},
        POOL,
        {"enable_chunked_prefill": False},
        {"prioritize_prefill": True},
        {"long_prefill_token_threshold": 4},
        {"max_num_seqs": 0},
    ),
    chunk_key="max_num_batched_tokens",
)
