"""What preemption costs: a small run by hand, and the workloads that are published."""

import msgspec
import pytest

from schedproof.examples.studies.recompute_model import Cost, cost_of
from schedproof.examples.studies.victims import POLICIES
from schedproof.examples.studies.workloads import (
    ENGINE,
    PRIORITIES,
    WORKLOADS,
    fewest_blocks,
    workload,
)
from schedproof.model.vllm.config import VllmConfig
from schedproof.model.vllm.model import VllmModel

TAIL, PRIORITY, WARM, COLD = POLICIES
SIX_BLOCKS = VllmConfig(block_size=4, num_blocks=6, max_num_seqs=8, max_num_batched_tokens=64)
TWO = workload("two", "2 x (8 + 9)", [(0, ((f"r{n}", 8),), 9) for n in range(2)])


def test_a_run_by_hand():
    # Steps 0 to 4 compute 8, 9, ... 12 tokens of both: three blocks each. In step 5 r0 needs a
    # fourth: r1 goes with 12 tokens, and its last block is handed out. r0 ends in step 8. In step 9
    # r1 finds two blocks and computes 5 tokens, 4 of them again; then it decodes until step 12.
    for policy in POLICIES:
        assert cost_of(SIX_BLOCKS, TWO, policy) == Cost(1, 1, 16 + 16 + 4, 4, 13, (9 + 13) / 2)


def test_without_a_prefix_cache_it_computes_all_twelve_again_and_in_one_step():
    config = msgspec.structs.replace(SIX_BLOCKS, enable_prefix_caching=False)
    assert cost_of(config, TWO, TAIL) == Cost(1, 1, 16 + 16 + 12, 12, 13, (9 + 13) / 2)


def test_with_room_for_all_nothing_is_computed_again():
    config = msgspec.structs.replace(SIX_BLOCKS, num_blocks=8)
    assert cost_of(config, TWO, TAIL) == Cost(0, 0, 32, 0, 9, 9.0)


def test_arrivals_are_kept_and_life_is_counted_from_them():
    late = workload("late", "", [(0, (("r0", 8),), 2), (5, (("r1", 8),), 2)])
    assert cost_of(SIX_BLOCKS, late, TAIL) == Cost(0, 0, 18, 0, 7, 2.0)


def test_what_is_shared_is_computed_once_and_is_no_recompute():
    chats = workload("chats", "", [(n, (("system", 8), (f"r{n}", 2)), 1) for n in range(2)])
    assert cost_of(SIX_BLOCKS, chats, TAIL)[2:4] == (10 + 2, 0)


def test_every_workload_is_under_pressure_and_can_be_run():
    assert len({one.name for one in WORKLOADS}) == len(WORKLOADS)
    for one in WORKLOADS:
        tokens = sum(request.prompt_len + request.max_tokens for request in one.requests)
        assert tokens > 2 * ENGINE.num_blocks * ENGINE.block_size
        assert [request.arrival for request in one.requests] == sorted(
            request.arrival for request in one.requests
        )
        assert {request.priority for request in one.requests} == set(range(PRIORITIES))
        model = VllmModel(msgspec.structs.replace(ENGINE, num_blocks=fewest_blocks(one)))
        assert {model.refusal(request) for request in one.requests} == {None}
        smaller = VllmModel(msgspec.structs.replace(ENGINE, num_blocks=fewest_blocks(one) - 1))
        assert any(smaller.refusal(request) for request in one.requests)


def test_the_lengths_of_the_mixed_workloads():
    mixed = next(one for one in WORKLOADS if one.name == "mixed")
    assert [(one.prompt_len, one.max_tokens) for one in mixed.requests[:3]] == [
        (32, 40),
        (429, 251),
        (826, 462),
    ]
    lengths = {(one.prompt_len, one.max_tokens) for one in mixed.requests}
    assert len(lengths) == len(mixed.requests)
    assert 32 <= min(lengths)[0] <= max(lengths)[0] <= 931


@pytest.mark.parametrize(
    ("policy", "cost"),
    [
        (TAIL, (16, 1, 34_682, 2_562, 1_244)),
        (PRIORITY, (29, 3, 40_497, 8_377, 1_241)),
        (WARM, (13, 1, 35_304, 3_184, 1_158)),
        (COLD, (19, 2, 34_153, 2_033, 1_229)),
    ],
    ids=[one.name for one in POLICIES],
)
def test_the_published_row_of_guests(policy, cost):
    guests = next(one for one in WORKLOADS if one.name == "guests")
    assert cost_of(ENGINE, guests, policy)[:5] == cost
