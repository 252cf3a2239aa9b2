"""The model as the rest of the suite sees it: what it shows, what it refuses."""

from typing import Any

import pytest

from schedproof.model.errors import InputError
from schedproof.model.members import find, without
from schedproof.model.nano_vllm.config import NanoConfig
from schedproof.model.nano_vllm.model import REVISIONS as MODULES
from schedproof.model.nano_vllm.model import NanoModel, make_model
from schedproof.model.nano_vllm.state import Sequence, State
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.spec.systems import SYSTEMS

from .build import REVISIONS, SMALL, ids, waiting

FIELDS_SHOWN = (
    *("kind", "scheduled", "emitted", "waiting", "running", "prefilling", "preempted"),
    *("finished", "computed", "prefix_hit", "blocks", "free_blocks", "slot_blocks"),
)
each_revision = pytest.mark.parametrize("revision", REVISIONS)


def model(revision: str = "documented", **changes: Any) -> NanoModel:
    return make_model(revision, SMALL | changes)


def request(prompt: int, max_tokens: int, **changes: Any) -> Request:
    content = (("s", prompt - 1), ("t", 1))
    return Request(
        **{"id": "a", "arrival": 0, "prompt": content, "max_tokens": max_tokens} | changes
    )


def test_a_model_is_its_configuration_and_its_revision() -> None:
    assert model() == NanoModel(NanoConfig(**SMALL), "documented")
    assert model("0.2.0") == NanoModel(NanoConfig(**SMALL), "0.2.0")
    assert (*MODULES,) == SYSTEMS["nano_vllm"].revisions


@each_revision
def test_a_configuration_without_a_model_is_refused_at_its_key(revision: str) -> None:
    with pytest.raises(InputError) as caught:
        model(revision, block_size=1)
    assert caught.value.path == "$.config.block_size"


@each_revision
def test_every_field_is_shown_whatever_the_configuration(revision: str) -> None:
    assert model(revision).observes == FIELDS_SHOWN


@each_revision
def test_nothing_is_anywhere_before_the_first_request(revision: str) -> None:
    assert model(revision).initial() == State(pool=Pool(16))


def test_a_request_enters_at_the_back_with_what_the_scheduler_is_told() -> None:
    one = model()
    state = one.arrive(one.initial(), request(5, 4))
    state = one.arrive(state, request(6, 4, id="b", output_len=2, priority=3))
    assert state.waiting == (
        Sequence("a", 5, 4, 4, (("s", 4), ("t", 1))),
        Sequence("b", 6, 4, 2, (("s", 5), ("t", 1))),
    )


@each_revision
@pytest.mark.parametrize(("num_blocks", "refused"), [(6, False), (5, True)])
def test_what_the_pool_never_holds_is_refused(
    revision: str, num_blocks: int, refused: bool
) -> None:
    """18 + 4 = 22 tokens, of which the last is never computed: 21, 6 blocks."""
    one = model(revision, num_blocks=num_blocks, max_num_batched_tokens=99)
    says = "prompt + max_tokens - 1 = 21 tokens needs 6 blocks of 5"
    assert one.refusal(request(18, 4)) == (says if refused else None)


@each_revision
@pytest.mark.parametrize(("budget", "beyond"), [(21, False), (20, True)])
def test_what_no_step_can_hold_is_refused_where_prompts_are_computed_whole(
    revision: str, budget: int, beyond: bool
) -> None:
    says = (
        "prompt + max_tokens - 1 = 21 tokens is beyond max_num_batched_tokens (20), "
        "and prompts are not chunked"
    )
    reported = model(revision, max_num_batched_tokens=budget).refusal(request(18, 4))
    assert reported == (says if beyond and revision == "documented" else None)


def test_of_two_reasons_the_pool_is_told() -> None:
    reported = model(num_blocks=5, max_num_batched_tokens=3).refusal(request(18, 4))
    assert reported == "prompt + max_tokens - 1 = 21 tokens needs 6 blocks of 5"


@each_revision
def test_the_last_token_needs_no_block(revision: str) -> None:
    """17 + 4 - 1 = 20 tokens, 5 blocks."""
    one = model(revision, num_blocks=5, max_num_batched_tokens=20)
    assert one.refusal(request(17, 4)) is None


@each_revision
def test_what_a_request_will_really_generate_does_not_count_at_the_door(revision: str) -> None:
    one = model(revision, num_blocks=5, max_num_batched_tokens=20)
    assert one.refusal(request(17, 5, output_len=1)) is not None


@pytest.mark.parametrize(("revision", "first"), [("documented", []), ("0.2.0", ["a"])])
def test_a_prompt_beyond_the_budget_is_a_matter_of_the_revision(
    revision: str, first: list[str]
) -> None:
    """It is let in by force: the door of `documented` has no way for it."""
    one = model(revision, max_num_batched_tokens=4)
    _, seen = one.step(one.arrive(one.initial(), request(6, 1)))
    assert list(seen["scheduled"]) == first


def test_what_is_known_of_a_sequence_is_its_prompt_and_what_it_generated() -> None:
    one = waiting(5, name="a")
    assert (one.num_tokens, one.known) == (5, (("a", 5),))
    more = one._replace(generated=2)
    assert (more.num_tokens, more.known) == (7, (("a", 5), ("out:a", 2)))


def test_who_is_rewound_keeps_what_it_asked_and_generated_and_nothing_else() -> None:
    kept = waiting(5, 4, "a", generated=2)
    held = kept._replace(computed=7, prefix_hit=4, blocks=(1, 2), published=1)
    assert held.rewound() == kept


def test_one_is_found_in_a_queue_and_taken_out_of_it() -> None:
    queue = tuple(waiting(5, name=name) for name in "abc")
    assert find(queue, "b") is queue[1]
    assert find(queue, "d") is None
    assert ids(without(queue, "b")) == ["a", "c"]
    assert without(queue, "d") == queue
