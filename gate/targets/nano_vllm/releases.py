"""Checkouts of nano-vLLM, which is on no package index."""

from ..checkouts import Checkout

CHECKOUT = Checkout(
    name="nano-vllm",
    system="nano_vllm",
    variable="SCHEDPROOF_NANO_VLLM",
    needs=("nanovllm/engine/scheduler.py", "nanovllm/engine/block_manager.py", "pyproject.toml"),
    newer=("nanovllm/engine/block_manager.py", "def hash_blocks"),
    revisions=("0.2.0", "documented"),
    supported="any version",
)
