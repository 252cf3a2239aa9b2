"""The configurations that targets of Spyre are judged in."""

from ..scales import POOL, GateScales

SCALES = GateScales(
    scales={
        "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "short": {"chunk_size": 128, "max_model_len": 256, "max_batch_tkv": 768},
        "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
    },
    plain={"prefix_caching": False, "num_blocks": None},
    features=(
        {"prefix_caching": True},
        POOL,
        {"interleave": False},
        {"pausing": False},
        {"long_output_priority": True},
    ),
    chunk_key="chunk_size",
)
