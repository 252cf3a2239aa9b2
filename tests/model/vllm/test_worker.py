"""What the model tells the worker: whole requests, then what is new, and who has ended."""

from schedproof.model.target import ModelTarget

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 32},
    "num_blocks": 12,
}


def started(**changes):
    target = ModelTarget()
    assert target.start("vllm", "documented", CONFIG | changes)["ok"]
    return target


def add(target, name, prompt=6, max_tokens=4, **fields):
    request = {"id": name, "prompt": [[name, prompt]], "max_tokens": max_tokens, **fields}
    assert target.add(request)["ok"]


def sent(target):
    return target.step()["step"]["sent"]


def test_a_request_is_sent_whole_and_then_its_new_blocks():
    target = started()
    add(target, "a")
    assert sent(target) == {"computed": {"a": 0}, "new": ["a"], "blocks": {"a": [[1, 2]]}}
    assert [sent(target) for _ in range(3)] == [
        {"computed": {"a": 6}},
        {"computed": {"a": 7}},
        {"computed": {"a": 8}, "blocks": {"a": [[3]]}},
    ]
    assert sent(target) == {"computed": {}, "dropped": ["a"]}
    assert sent(target) == {"computed": {}}


def test_a_preempted_request_is_dropped_and_then_sent_whole():
    target = started(num_blocks=4)
    for name in "ab":
        add(target, name, prompt=8, max_tokens=3)
    assert sent(target)["new"] == ["a", "b"]
    assert sent(target) == {"computed": {"a": 8}, "blocks": {"a": [[4]]}, "dropped": ["b"]}
    assert sent(target) == {"computed": {"a": 9}}
    again = sent(target)
    assert (again["new"], again["dropped"], again["computed"]) == (["b"], ["a"], {"b": 4})


def test_the_first_stage_of_a_pipeline_is_sent_the_tokens_that_it_computes():
    target = started(pipeline_parallel_size=2)
    add(target, "a", prompt=20)
    assert [sent(target).get("tokens") for _ in range(4)] == [{"a": 16}, {"a": 20}, {}, {"a": 21}]
    target = started(async_scheduling=True)
    add(target, "a")
    assert "tokens" not in sent(target)
