"""The checkouts of LLMServingSim, and the configurations to judge them in. No package index has
LLMServingSim."""

from ..checkouts import Checkout
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
        {"instances": 2},  # shows everything that a single instance shows, and more
    ),
    chunk_key="max_num_batched_tokens",
)


CHECKOUT = Checkout(
    name="llmservingsim",
    system="llmservingsim",
    variable="SCHEDPROOF_LLMSERVINGSIM",
    needs=("serving/core/scheduler.py|inference_serving/scheduler.py",),
    newer=("serving/core/scheduler.py", "def _schedule_running"),
    revisions=("head", "documented"),
    supported="1.0.0 and later",
)
