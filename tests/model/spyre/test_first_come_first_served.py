"""First come, first served with the exact check has no bound: a family of loads shows it."""

import pytest

from schedproof.model.scenario import Request
from schedproof.model.spyre.model import make_model, with_formula


def sum_of_ends(limit, lengths):
    """The sum of the steps in which requests end that arrive together, in the order given."""
    config = {"block_size": 1, "chunk_size": limit, "max_model_len": limit}
    config |= {"max_num_seqs": len(lengths), "max_batch_tkv": limit}
    model = with_formula(make_model("sound", config), "exact")
    state, ends, step = model.initial(), 0, 0
    for number, (prompt, tokens) in enumerate(lengths):
        request = Request(
            id=f"r{number}", arrival=0, prompt=((f"r{number}", prompt),), max_tokens=tokens
        )
        assert model.refusal(request) is None
        state = model.arrive(state, request)
    while state.waiting or state.running:
        step += 1
        state, seen = model.step(state)
        ends += step * len(seen["finished"])
    return ends


def ratio(count):
    """First come, first served against the order in which the wide request comes last."""
    steps = count * count
    limit = 2 * (steps + 1)
    runs_long, wide, short = (1, steps), (limit - 1, 2), [(1, 2)] * count
    served = sum_of_ends(limit, [runs_long, wide, *short])
    return served / sum_of_ends(limit, [runs_long, *short, wide])


@pytest.mark.parametrize("count", [4, 8, 16])
def test_a_wide_request_at_the_head_of_the_queue_costs_a_factor_that_grows(count):
    assert ratio(count) >= count / 3
