"""Prefix hits that end inside a block."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

GROUPS = {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}]}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 32, "max_model_len": 32},
    **{"num_blocks": 24, "enable_prefix_caching": True, "prefix_match_unit": 2, **GROUPS},
}


def target(**more):
    model = ModelTarget()
    assert model.start("vllm", "0.33", {**SMALL, **more})["ok"]
    return model


def add(model, name, *prompt, tokens=1):
    assert model.add({"id": name, "prompt": [list(s) for s in prompt], "max_tokens": tokens})["ok"]


def steps(model, number):
    return [model.step()["step"] for _ in range(number)]


def test_a_prefill_stops_at_the_last_unit_of_the_prompt_and_the_next_step_copies_the_state():
    model = target()
    add(model, "a", ("a", 7), tokens=3)
    seen = steps(model, 3)
    assert [step["scheduled"] for step in seen] == [{"a": 4}, {"a": 2}, {"a": 1}]
    (held,) = seen[1]["group_blocks"]["a"]
    ((block, _),) = seen[2]["sent"]["copies"]
    assert block == held[1] == seen[2]["group_blocks"]["a"][0][1]


def test_a_hit_may_end_inside_a_block_which_is_copied_in_every_group():
    model = target()
    add(model, "a", ("s", 6), ("a", 1), tokens=9)
    steps(model, 4)
    add(model, "b", ("s", 6), ("b", 3))
    (seen,) = steps(model, 1)
    assert seen["prefix_hit"]["b"] == 6
    assert seen["scheduled"]["b"] == 2
    copies = dict(map(reversed, seen["sent"]["copies"]))
    assert seen["blocks"]["a"][0] == seen["blocks"]["b"][0]
    assert copies[seen["blocks"]["b"][1]] == seen["blocks"]["a"][1]
    assert seen["group_blocks"]["b"][0][1] in copies


def test_without_a_unit_a_hit_ends_at_a_block_boundary():
    model = target(prefix_match_unit=None)
    add(model, "a", ("s", 6), ("a", 1), tokens=9)
    steps(model, 4)
    add(model, "b", ("s", 6), ("b", 3))
    assert steps(model, 1)[0]["prefix_hit"]["b"] == 4


def test_a_request_waits_for_a_copy_or_a_state_of_the_same_step():
    model = target(prefix_cache_retention_interval=0)
    add(model, "a", ("s", 6), ("a", 1), tokens=2)
    steps(model, 4)
    add(model, "b", ("s", 6), ("b", 14))
    add(model, "c", ("s", 6), ("b", 4), ("c", 3))
    seen = steps(model, 2)
    assert [step["scheduled"].get("c") for step in seen] == [None, 2]
    assert seen[1]["prefix_hit"]["c"] == 6


def test_a_request_whose_copies_exceed_the_pool_computes_its_prompt_itself():
    model = target(num_blocks=11)
    add(model, "a", ("s", 23))
    steps(model, 4)
    add(model, "b", ("s", 22), ("b", 9))
    (seen,) = steps(model, 1)
    assert seen["scheduled"]["b"] == 20
    assert not seen["prefix_hit"]["b"]


def test_a_reset_forgets_the_names_inside_blocks():
    model = target()
    add(model, "a", ("s", 7), tokens=1)
    steps(model, 4)
    assert model.control("reset_prefix_cache")["done"]
    add(model, "b", ("s", 7))
    assert not steps(model, 1)[0]["prefix_hit"]["b"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kv_groups": [{"kind": "full"}]}, "2 with no mamba group and prefix cache is not"),
        ({"mamba_cache_mode": "all"}, "2 with mamba_cache_mode all is not modelled"),
        ({"num_speculative_tokens": 1}, "2 with drafts is not modelled"),
        ({"prefix_match_unit": 3}, "3; valid: a divisor of block_size (4), or null"),
        (
            {"kv_groups": [*GROUPS["kv_groups"], {"kind": "sliding_window", "window": 4}]},
            "2 with a group of another kind is not modelled",
        ),
    ],
)
def test_a_unit_needs_mamba_layers_and_divides_a_block(config, message):
    with pytest.raises(InputError) as raised:
        read_config({**SMALL, **config}, "0.33")
    assert str(raised.value).startswith(f"$.config.prefix_match_unit: {message}")
