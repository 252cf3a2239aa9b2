"""Groups of the KV cache, each with its own pool: a request needs room in all of them."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config, make_model

FULL = {"kind": "full"}


def window(num_blocks, tokens=6):
    return {"kind": "sliding_window", "window": tokens, "num_blocks": num_blocks}


def config(*groups, **keys):
    sizes = {"block_size": 4, "num_blocks": 30, "max_num_batched_tokens": 8, "max_model_len": 64}
    return {**sizes, "kv_groups": [FULL, *groups], **keys}


def steps(values, *lengths, number=200):
    """Run requests with prompts of these lengths, which generate three tokens each."""
    model = make_model("generic", "documented", values)
    state = model.initial()
    for n, length in enumerate(lengths):
        prompt = ((f"r{n}", length),)
        request = Request(id=f"r{n}", arrival=0, prompt=prompt, max_tokens=3)
        assert model.refusal(request) is None
        state = model.arrive(state, request)
    for _ in range(number):
        state, seen = model.step(state)
        yield seen
        if seen["kind"] == "idle":
            return


def test_blocks_that_left_the_window_go_back_to_its_own_pool():
    seen = list(steps(config(window(8)), 20))
    assert [step["group_blocks"].get("r0") for step in seen[:3]] == [
        [[1, 2]],
        [[1, 2, 3, 4]],
        [[0, 0, 3, 4, 2]],
    ]
    assert [step["group_free_blocks"] for step in seen[:3]] == [[6], [4], [5]]
    assert [step["free_blocks"] for step in seen[:3]] == [28, 26, 25]
    assert (seen[-1]["free_blocks"], seen[-1]["group_free_blocks"]) == (30, [8])


def test_admission_asks_each_pool():
    """The second request fits into full attention, but not beside the first one's window."""
    started = {len(step["running"]) for step in steps(config(window(5)), 20, 20)}
    assert started == {0, 1}
    started = {len(step["running"]) for step in steps(config(window(10)), 20, 20)}
    assert 2 in started


def test_a_request_that_never_fits_a_pool_is_refused():
    model = make_model("generic", "documented", config(window(8), window(3)))
    long = Request(id="r0", arrival=0, prompt=(("r0", 20),), max_tokens=3)
    message = "prompt + max_tokens - 1 = 22 tokens needs 5 blocks of group 2, but its pool has 3"
    assert model.refusal(long) == message
    short = Request(id="r1", arrival=0, prompt=(("r1", 10),), max_tokens=3)
    assert model.refusal(short) is None


def test_a_prompt_longer_than_the_pool_of_a_window_is_computed():
    seen = list(steps(config(window(5)), 60))
    assert seen[-2]["finished"] == {"r0": "length"}
    assert (
        max(len(list(filter(None, step["group_blocks"].get("r0", [[]])[0]))) for step in seen) <= 5
    )


def test_one_group_is_no_group():
    values = full_config("generic", "documented", {"kv_groups": [FULL]})
    assert "kv_groups" not in values
    seen = next(steps(config(), 5))
    assert not {"group_blocks", "group_free_blocks"} & seen.keys()


@pytest.mark.parametrize(
    ("groups", "keys", "message"),
    [
        ([], {}, r"kv_groups: is empty; valid: a list that begins with a full group"),
        ([window(8)], {}, r"begins with sliding_window; valid: a list that begins with a full"),
        ([{**FULL, "window": 4}], {}, r"kv_groups\[0\].window: 4 for a full group; valid: absent"),
        ([{**FULL, "num_blocks": 4}], {}, r"\[0\].num_blocks: 4 for a full group; valid: absent, "),
        ([FULL, FULL], {}, r"kv_groups\[1\].kind: full after the first group: .* sliding_window"),
        ([FULL, window(8, 1)], {}, r"\[1\].window: sliding_window with window 1; valid: at least"),
        (
            [FULL, {"kind": "sliding_window", "num_blocks": 8}],
            {},
            r"\[1\].window: sliding_window with no window; valid: at least 2 tokens",
        ),
        (
            [FULL, {"kind": "sliding_window", "window": 8}],
            {},
            r"\[1\].num_blocks: missing: each group has its own pool; valid: at least 1 block",
        ),
        ([FULL, {"kind": "mamba"}], {}, r"Invalid enum value 'mamba'"),
        (
            [FULL, window(8)],
            {"num_blocks": None},
            r"2 groups with num_blocks null are not modelled; valid: one group, or num_blocks a ",
        ),
        (
            [FULL, window(8)],
            {"enable_prefix_caching": True},
            r"2 groups with enable_prefix_caching are not modelled; valid: one group, or ",
        ),
        ([FULL, window(8)], {"kv_connector": True}, r"2 groups with kv_connector are not "),
        ([FULL, window(8)], {"pipeline_parallel_size": 2}, r"or pipeline_parallel_size 1"),
    ],
)
def test_groups_that_are_not_modelled_are_refused(groups, keys, message):
    with pytest.raises(InputError, match=message):
        full_config("generic", "documented", {"num_blocks": 30, "kv_groups": groups, **keys})


def test_vllm_has_one_pool_for_all_groups():
    with pytest.raises(InputError, match=r"kv_groups.*num_blocks"):
        full_config("vllm", "documented", {"num_blocks": 30, "kv_groups": [FULL, window(8)]})
