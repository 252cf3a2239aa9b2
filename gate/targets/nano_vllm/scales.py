"""The configurations that targets of nano-vLLM are judged in."""

from ..scales import GateScales

SCALES = GateScales(
    scales={
        "small": {"block_size": 2, "num_blocks": 8, "max_num_seqs": 4},
        "short": {"block_size": 16, "num_blocks": 8, "max_num_seqs": 4},
        "tight": {"block_size": 256, "num_blocks": 8, "max_num_seqs": 4},
    },
    plain={},
    features=(),
    chunk_key="max_num_batched_tokens",
)
