"""vLLM's second model runner: what its scheduler decides and sends differently."""

import os

import pytest

from schedproof.gate.targets.protocol_checks import RefusedError
from schedproof.gate.targets.vllm import in_flight, model_runner
from schedproof.tests.model.vllm.pauses import RUNS, scheduled

from .served import RELEASES

KEY = {"use_v2_model_runner": True}
AHEAD_IN_STAGES = {"async_scheduling": True, "pipeline_parallel_size": 2, **KEY}


def test_it_is_refused_where_vllm_has_no_option_for_it(vllm):
    reply = vllm.start(**KEY)
    if vllm.version == RELEASES[0]:
        assert reply["message"] == (
            f"$.config.use_v2_model_runner is true; valid: false (vllm {vllm.version} has no "
            "VllmConfig.use_v2_model_runner)"
        )
    else:
        assert reply["ok"]


def test_a_request_that_resumes_is_sent_as_a_new_one(vllm):
    if vllm.version == RELEASES[0]:
        pytest.skip("no second model runner")
    for key, field in ((KEY, "new"), ({}, "resumed")):
        vllm.begin(num_blocks=4, max_num_seqs=2, **key)
        for name in ("a", "b"):
            vllm.ask(name, (name, 7), max_tokens=7)
        steps = [vllm.step() for _ in range(12)]
        assert ["b" in step["preempted"] for step in steps].count(True) == 1
        sent = [step["sent"] for step in steps]
        assert [message.get(field) for message in sent if "b" in message.get(field, ())][-1] == [
            "b"
        ]
        assert sum("b" in message.get("new", ()) for message in sent) == (2 if key else 1)


def test_a_pipeline_has_one_more_decision_in_flight_and_a_request_decodes_in_turn(vllm):
    if vllm.version == RELEASES[0]:
        pytest.skip("no second model runner")
    vllm.begin(**AHEAD_IN_STAGES)
    for name in ("a", "b"):
        vllm.ask(name, (name, 4), max_tokens=4)
        first = vllm.step()
    assert first["scheduled"] == {"b": 4}
    steps = [vllm.step() for _ in range(7)]
    assert [[*step["scheduled"]] for step in steps] == [
        ["a"],
        ["b"],
        ["a"],
        ["b"],
        ["a"],
        ["b"],
        [],
    ]
    assert [[*step["emitted"]] for step in steps[:3]] == [["a"], ["b"], ["a"]]


@pytest.mark.parametrize(("stages", "prompts", "changes", "expected"), RUNS)
def test_a_step_without_a_decision_does_not_count_as_rest(vllm, stages, prompts, changes, expected):
    if vllm.version == RELEASES[0]:
        pytest.skip("no second model runner")
    steps = len(expected.split())
    assert scheduled(vllm.pipe, "documented", stages, prompts, changes, steps) == expected


def test_a_release_with_another_number_of_decisions_in_flight_is_refused():
    class Config:
        max_concurrent_batches = 2

    assert in_flight.depth(AHEAD_IN_STAGES) == 3
    with pytest.raises(RefusedError) as caught:
        model_runner.check("vllm 1", AHEAD_IN_STAGES, Config)
    assert str(caught.value) == (
        "$.config.use_v2_model_runner is true; valid: false (vllm 1 has 2 decisions in flight, "
        "not 3)"
    )
    model_runner.check("vllm 1", {"async_scheduling": True}, Config)


def test_the_first_model_runner_is_chosen_whatever_is_installed(monkeypatch):
    monkeypatch.setenv(model_runner.VARIABLE, "1")
    assert not model_runner.choose("vllm 1", {})
    assert os.environ[model_runner.VARIABLE] == "0"
