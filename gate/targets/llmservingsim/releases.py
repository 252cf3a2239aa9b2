"""Checkouts of LLMServingSim, which is on no package index."""

from ..checkouts import Checkout

CHECKOUT = Checkout(
    name="llmservingsim",
    system="llmservingsim",
    variable="SCHEDPROOF_LLMSERVINGSIM",
    needs=("serving/core/scheduler.py", "serving/core/memory_model.py"),
    newer=("serving/core/scheduler.py", "def _schedule_running"),
    revisions=("head", None),
    supported="the scheduler over a block pool, after v1.1.0",
)
