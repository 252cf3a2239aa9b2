"""Groups of the KV cache with drafts: what proves a hit, and blocks for states after drafts."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

FULL, MAMBA = {"kind": "full"}, {"kind": "mamba"}
EAGLE = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 40, "max_model_len": 64},
    **{"num_blocks": 60, "enable_prefix_caching": True, "reserve_full_isl": False},
}


def window(tokens, **more):
    return {"kind": "sliding_window", "window": tokens, **more}


def target(*groups, revision="documented", **more):
    model = ModelTarget()
    keys = {**SMALL, "kv_groups": [FULL, *groups], **more}
    assert model.start("vllm", revision, keys)["ok"]
    return model


def add(model, name, *prompt, tokens=1, **more):
    request = {"id": name, "prompt": [list(s) for s in prompt], "max_tokens": tokens, **more}
    assert model.add(request)["ok"]


def steps(model, number):
    return [model.step()["step"] for _ in range(number)]


@pytest.mark.parametrize(
    ("revision", "goes_on", "hit"),
    [("documented", "a", 4), ("documented", "b", 4), ("0.33", "a", 8), ("0.33", "b", 4)],
)
def test_with_eagle_a_hit_needs_the_next_token_in_every_group(revision, goes_on, hit):
    model = target(window(5), revision=revision, **EAGLE)
    add(model, "a", ("a", 12), tokens=9)
    steps(model, 1)
    add(model, "b", *([("a", 11)] if goes_on == "a" else [("a", 8), ("b", 3)]), tokens=2)
    assert model.step()["step"]["prefix_hit"]["b"] == hit


@pytest.mark.parametrize(("length", "hit"), [(14, 8), (9, 4)])
def test_with_eagle_a_window_keeps_the_block_that_proves_a_hit(length, hit):
    model = target(window(3, block_size=2), **EAGLE)
    add(model, "a", ("a", length), tokens=9)
    steps(model, 1)
    # Of a hit of 8 tokens, the window reads its block 3; its block 4 shows that the tokens go on.
    add(model, "b", ("a", 14), tokens=2)
    assert model.step()["step"]["prefix_hit"]["b"] == hit


def test_tables_have_places_for_the_lookahead_of_attention_layers_only():
    model = target(window(40), MAMBA, **EAGLE)
    add(model, "a", ("a", 8), tokens=4)
    _, seen = steps(model, 2)  # a state is left at the last boundary where a hit may end
    [of_window, of_states] = seen["group_blocks"]["a"]
    assert [len(seen["blocks"]["a"]), len(of_window), len(of_states)] == [3, 3, 2 + 2]


def test_the_states_of_drafts_move_on_when_a_step_leaves_its_state_behind_them():
    model = target(MAMBA, num_speculative_tokens=2, max_num_batched_tokens=8)
    add(model, "a", ("a", 22), tokens=9)
    first, second, third = [step["group_blocks"]["a"][0] for step in steps(model, 3)]
    _, state, draft, other = first
    assert first == [0, state, draft, other]
    # The block of a draft becomes that of the step's state; the other one moves behind it.
    assert second == [0, state, 0, other, draft, second[5]]
    assert third == [0, 0, 0, other, draft, second[5], third[6]]


def test_without_a_prefix_cache_a_mamba_group_has_a_block_and_one_for_each_draft():
    model = target(MAMBA, num_speculative_tokens=2, enable_prefix_caching=False)
    add(model, "a", ("a", 30), tokens=9)
    assert [len(step["group_blocks"]["a"][0]) for step in steps(model, 4)] == [3, 3, 3, 3]


def test_wrong_drafts_in_flight_do_not_let_a_window_slide():
    """The step in flight computes from where the wrong drafts end, and reads its window there."""
    model = target(
        window(5, block_size=2), async_scheduling=True, enable_prefix_caching=False, **EAGLE
    )
    add(model, "a", ("a", 6), tokens=30, accepted=[0])
    for step in steps(model, 9)[4:]:
        # Each step has two wrong drafts. When it was decided, another one was in flight.
        table, read = step["group_blocks"]["a"][0], step["computed"]["a"] - 1 - 3 - 4
        assert all(table[read // 2 :])
        assert not any(table[: read // 2])


@pytest.mark.parametrize(
    ("groups", "keys", "words"),
    [
        (
            [{"kind": "chunked_local", "window": 8}],
            EAGLE,
            "$.config.kv_groups[1].kind: chunked_local with num_lookahead_tokens and prefix",
        ),
        ([MAMBA], {"kv_connector": True}, "$.config.kv_connector: true with a mamba group is not"),
        (
            [window(4)],
            {"kv_connector": True, "synchronous_loads": True},
            "$.config.kv_groups: 2 groups with synchronous_loads are not modelled; valid: one",
        ),
    ],
)
def test_what_no_release_or_the_model_has_is_refused(groups, keys, words):
    with pytest.raises(InputError) as refused:
        read_config({**SMALL, "kv_groups": [FULL, *groups], **keys}, "documented")
    assert str(refused.value).startswith(words)
