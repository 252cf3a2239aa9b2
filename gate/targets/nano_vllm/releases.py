"""The checkouts of nano-vLLM, and the configurations to judge them in. No package index has
nano-vLLM."""

from ..checkouts import Checkout
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


CHECKOUT = Checkout(
    name="nano-vllm",
    system="nano_vllm",
    variable="SCHEDPROOF_NANO_VLLM",
    needs=(
        "nanovllm/engine/scheduler.py",
        "nanovllm/engine/block_manager.py",
        "nanovllm/engine/model_runner.py",
        "pyproject.toml",
    ),
    newer=("nanovllm/engine/block_manager.py", "def hash_blocks"),
    revisions=("0.2.0", "documented"),
    supported="any version",
)
