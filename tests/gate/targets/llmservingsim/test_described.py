"""Releases 1.0.0 and 1.1.0 beside an independent description of them.

This runs where SCHEDPROOF_LLMSERVINGSIM names a checkout of one of them, and where this Python has
numpy, pyyaml and rich.
"""

import importlib
import os
import random
from collections import Counter

import pytest

from schedproof.gate.targets.llmservingsim.checkout import load, package_in
from schedproof.gate.targets.llmservingsim.target import VARIABLE, LlmServingSimTarget
from schedproof.model.pool import prefix

from ..described import EPISODES, random_prompts, run_beside
from .tags import REASONS, Tag100, Tag110

TAGS = {"1.0.0": Tag100, "1.1.0": Tag110}


class Answering(LlmServingSimTarget):
    """The target, which answers an error of the checkout."""

    def step(self):
        try:
            return super().step()
        except Exception as error:
            return {"ok": False, "message": repr(error)}

    @property
    def tree(self):
        return self._engine.scheduler.memory.npu_prefix_cache


@pytest.fixture(scope="module")
def version():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: no checkout of LLMServingSim to run")
    found = load(folder).version
    if found not in TAGS:
        pytest.skip(f"the checkout is {found}, which has a model")
    return found


def configuration(rng, version, block, pool):
    chunked = version == "1.1.0" and rng.random() < 0.6
    budget = rng.choice((rng.randint(1, 8), rng.randint(4, 20 * block), 200))
    threshold = rng.choice((0, 0, rng.randint(1, 3 * block))) if chunked else 0
    return {
        "block_size": block,
        "num_blocks": pool,
        "max_num_seqs": rng.randint(1, 6),
        "max_num_batched_tokens": budget,
        "long_prefill_token_threshold": threshold,
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": rng.random() < 0.6,
        "prioritize_prefill": rng.random() < 0.35,
        "pp_size": 1,
        "instances": 0,
    }


def run(target, version, tree, pool, seed):
    """Compare one random run, and return how it ended."""
    rng = random.Random(seed)
    block = rng.choice((1, 2, 4, 16))
    config = configuration(rng, version, block, rng.randint(4, 16) if pool else None)
    reply = target.start("llmservingsim", "documented", config)
    assert reply["ok"], reply
    radix = None
    if config["enable_prefix_caching"]:
        own = target.tree
        size = {"page_size": block, "capacity": own.capacity, "kv_size": own.kv_size}
        radix = tree(node_id=0, device="NPU", enable_kv_cache_events=True, **size)
    prompts = random_prompts(rng, block)
    if not config["enable_chunked_prefill"]:  # finding 17: others would wait forever
        prompts = (prefix(prompt, config["max_num_batched_tokens"]) for prompt in prompts)
    return run_beside(target, TAGS[version](config, radix), prompts, 3 * block + 3, seed)[1]


@pytest.mark.parametrize("pool", [True, False], ids=["bounded", "unbounded"])
def test_a_release_decides_as_it_is_described(version, pool):
    tree = importlib.import_module(f"{package_in(os.environ[VARIABLE])}.radix_tree").RadixCache
    target = Answering()
    ends = Counter(run(target, version, tree, pool, seed) for seed in range(EPISODES))
    assert {*ends} <= {"", *REASONS}
    assert ends[""] > EPISODES // 3
