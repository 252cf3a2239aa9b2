"""The deck, described independently, beside its model and beside commit 9e8507e.

The commit is compared where SCHEDPROOF_NANO_VLLM names a checkout of it.
"""

import os
import random
from collections import Counter

import pytest

from schedproof.gate.targets import checkouts
from schedproof.gate.targets.nano_vllm.releases import CHECKOUT
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.model.target import ModelTarget

from ..described import EPISODES, random_prompts, run_beside
from .deck import NOTHING_SCHEDULED, OF_THE_COMMIT, Deck


def compare(target, episodes, points=()):
    """Compare random runs; return how each of them ended."""
    ends: Counter[str] = Counter()
    for seed in range(episodes):
        rng = random.Random(seed)
        block = rng.choice((2, 2, 4, 16))
        budget = rng.choice((rng.randint(3 * block, 8 * block), 24 * block, 512))
        config = {"block_size": block, "num_blocks": rng.randint(4, 16)}
        config |= {"max_num_seqs": rng.randint(1, 5), "max_num_batched_tokens": budget}
        assert target.start("nano_vllm", "documented", config)["ok"]
        deck = Deck(config, points)
        _, end = run_beside(target, deck, random_prompts(rng, block), 2 * block + 3, seed)
        ends[end] += 1
    return ends


def test_the_model_decides_as_the_deck_says():
    assert set(compare(ModelTarget(), EPISODES)) == {""}


@pytest.fixture(scope="module")
def commit():
    folder = os.environ.get(CHECKOUT.variable, "")
    if not folder or checkouts.revision_of(CHECKOUT, folder) != "documented":
        pytest.skip(f"${CHECKOUT.variable} names no checkout of the deck's generation")
    command, env = checkouts.command_of(CHECKOUT, folder)
    with PipeTarget(command, env=env) as pipe:
        if "chunked" in pipe.start("nano_vllm", "documented", SMALL)["version"]:
            pytest.skip("the checkout cuts prompts, so the deck does not describe it")
        yield pipe


SMALL = {"block_size": 2, "num_blocks": 4, "max_num_seqs": 2, "max_num_batched_tokens": 8}


def test_the_commit_differs_from_the_deck_only_in_the_findings(commit):
    ends = compare(commit, EPISODES, OF_THE_COMMIT)
    assert set(ends) == {"", NOTHING_SCHEDULED}


@pytest.mark.parametrize("point", sorted(OF_THE_COMMIT))
def test_no_finding_is_without_effect(commit, point):
    with pytest.raises(AssertionError):
        compare(commit, 2_000, OF_THE_COMMIT - {point})
