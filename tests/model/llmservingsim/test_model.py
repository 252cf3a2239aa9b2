"""The models as the rest of the suite sees them: what they show, what they refuse, who leaves."""

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
def test_optional_fields_are_shown_where_they_mean_something(revision, changes, more):
    assert set(Run(revision, **changes).model.observes) == ALWAYS | more


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


def test_the_pipeline_depth_makes_no_difference_where_a_step_completes_at_once():
    seen = []
    for depth in (1, 3):
        run = Run("head", pp_size=depth, num_blocks=4)
        for name in "abc":
            run.ask(name, 5, 4)
        seen.append([run.step() for _ in range(12)])
    assert seen[0] == seen[1]
