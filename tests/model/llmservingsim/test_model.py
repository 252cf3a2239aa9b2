"""The models as the rest of the suite sees them: what they show, what they refuse, who leaves."""

from dataclasses import FrozenInstanceError

import pytest

from schedproof.model.llmservingsim.model import make_model
from schedproof.model.scenario import Request

from .build import SMALL, Run

ALWAYS = {
    *("kind", "scheduled", "emitted", "waiting", "running", "prefilling", "preempted"),
    *("finished", "computed", "blocks", "prompt_throughput", "decode_throughput"),
}


@pytest.mark.parametrize(
    ("revision", "changes", "more"),
    [
        ("documented", {}, set()),
        ("head", {}, set()),
        ("head", {"enable_prefix_caching": True}, {"prefix_hit"}),
        ("head", {"num_blocks": 4}, {"free_blocks"}),
        ("documented", {"num_blocks": 4}, {"free_blocks", "reserved_blocks"}),
    ],
)
def test_every_field_that_is_promised_is_shown_and_no_other(revision, changes, more):
    run = Run(revision, **changes)
    run.ask("a", 5, 2)
    assert set(run.model.observes) == ALWAYS | more
    assert set(run.step()) == ALWAYS | more


def refusal(prompt, max_tokens, **changes):
    request = Request(id="a", arrival=0, prompt=(("a", prompt),), max_tokens=max_tokens)
    return make_model("head", SMALL | changes).refusal(request)


def test_what_the_pool_cannot_hold_is_refused():
    assert refusal(10, 7, num_blocks=4) is None
    assert refusal(10, 8, num_blocks=4) == "prompt + max_tokens - 1 = 17 tokens needs 5 blocks of 4"


def test_with_chunking_off_what_no_budget_holds_is_refused():
    off = {"enable_chunked_prefill": False}
    assert refusal(10, 7, **off) is None
    assert refusal(10, 8, **off) == (
        "prompt + max_tokens - 1 = 17 tokens is beyond max_num_batched_tokens (16), "
        "and prompts are not chunked"
    )
    assert refusal(10, 8, **off, long_prefill_token_threshold=16) is None
    assert refusal(10, 8) is None


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_who_is_aborted_leaves_as_one_that_has_finished(revision):
    run = Run(revision, num_blocks=6)
    run.ask("a", 5, 3)
    run.ask("b", 5, 3)
    run.step()
    run.state = run.model.abort(run.state, "a")
    run.state = run.model.abort(run.state, "none_there")
    step = run.step()
    assert step["finished"] == {"a": "aborted"}
    assert (step["running"], step["free_blocks"]) == (["b"], 4)
    assert run.step()["finished"] == {"b": "length"}


def test_who_stops_early_has_said_eos():
    run = Run("documented")
    run.ask("a", 5, 3, 2)
    run.step()
    assert run.step()["finished"] == {"a": "eos"}


def test_nothing_scheduled_is_an_idle_step():
    step = Run("documented").step()
    assert (step["kind"], step["scheduled"], step["emitted"]) == ("idle", {}, {})


def test_the_pipeline_depth_makes_no_difference_where_a_step_completes_at_once():
    seen = []
    for depth in (1, 3):
        run = Run("head", pp_size=depth, num_blocks=4)
        for name in "abc":
            run.ask(name, 5, 4)
        seen.append([run.step() for _ in range(12)])
    assert seen[0] == seen[1]


def test_a_model_stays_what_it_was_made():
    model = make_model("head", SMALL)
    with pytest.raises(FrozenInstanceError):
        model.config = make_model("head", {}).config
    assert model == make_model("head", SMALL)
