"""The model as the rest of the suite sees it: what it shows, what it refuses, who it is."""

from typing import Any

import pytest

from schedproof.model.errors import InputError
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.model import REVISIONS, SpyreModel, make_model
from schedproof.model.spyre.state import Sequence, State

from .build import EACH, SMALL, only

ALWAYS = (
    *("kind", "scheduled", "emitted", "tkv", "left_pad_blocks", "slot_blocks"),
    *("waiting", "running", "prefilling", "finished", "computed", "blocks"),
)
# Of a pool that every revision takes.
BOUNDED = {"num_blocks": 100}


def request(prompt: int, max_tokens: int, **changes: Any) -> Request:
    content = (("s", prompt - 1), ("t", 1))
    return Request(
        **{"id": "a", "arrival": 0, "prompt": content, "max_tokens": max_tokens} | changes
    )


@EACH
def test_the_model_is_that_of_the_revision_with_the_configuration_read(revision: str) -> None:
    model = make_model(revision, SMALL)
    assert model == SpyreModel(SpyreConfig(**SMALL), REVISIONS[revision])


@pytest.mark.parametrize(
    ("revision", "values", "path"),
    [
        ("sound", {"block": 4}, "$.config.block"),
        ("documented", {"long_output_priority": True}, "$.config.long_output_priority"),
        ("2.5.2", {"max_model_len": 64, "block_size": 4, "num_blocks": 15}, "$.config.num_blocks"),
    ],
)
def test_what_the_model_cannot_be_is_refused(
    revision: str, values: dict[str, Any], path: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_model(revision, values)
    assert caught.value.path == path


@only("sound", "documented", "2.1.2", "2.5.2")
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_optional_fields_are_shown_where_they_mean_something(
    revision: Any, caching: bool, bounded: bool
) -> None:
    model = make_model(
        revision.name, SMALL | {"prefix_caching": caching} | (BOUNDED if bounded else {})
    )
    optional = [
        *(["paused"] if revision.name == "2.5.2" else []),
        *(["prefix_hit"] if caching else []),
        *(["reserved_blocks"] if revision.name != "2.1.2" else []),
        *(["free_blocks"] if bounded else []),
    ]
    assert list(model.observes) == [*ALWAYS, *optional]


@EACH
def test_nothing_is_anywhere_before_the_first_request(revision: str) -> None:
    assert make_model(revision, SMALL).initial() == State(pool=Pool(None))
    assert make_model(revision, SMALL | BOUNDED).initial() == State(pool=Pool(100))


@EACH
def test_a_request_enters_with_what_the_scheduler_is_told_at_the_end_of_the_queue(
    revision: str,
) -> None:
    model = make_model(revision, SMALL)
    state = model.arrive(model.initial(), request(5, 4))
    state = model.arrive(state, request(6, 4, id="b", output_len=2))
    assert state.waiting == (
        Sequence("a", 5, 4, 4, content=(("s", 4), ("t", 1))),
        Sequence("b", 6, 4, 2, content=(("s", 5), ("t", 1))),
    )


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({}, None),
        ({"max_model_len": 21}, None),
        ({"max_model_len": 20}, "21 tokens is beyond max_model_len (20)"),
        ({"max_batch_tkv": 21}, None),
        ({"max_batch_tkv": 20}, "21 tokens is beyond max_batch_tkv (20)"),
        ({"num_blocks": 6}, None),
        ({"num_blocks": 5}, "21 tokens needs 6 blocks of 5"),
        # Two reasons: the first one is told.
        (
            {"max_model_len": 20, "max_batch_tkv": 20, "num_blocks": 5},
            "21 tokens is beyond max_model_len (20)",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_limit_that_it_exceeds(
    values: dict[str, Any], refusal: str | None
) -> None:
    """18 + 4 - 1 = 21 tokens, 6 blocks."""
    model = make_model("sound", SMALL | values)
    expected = None if refusal is None else f"prompt + max_tokens - 1 = {refusal}"
    assert model.refusal(request(18, 4)) == expected


@EACH
def test_what_a_request_will_really_generate_does_not_count_at_the_door(revision: str) -> None:
    assert make_model(revision, SMALL).refusal(request(60, 6, output_len=1)) is not None
    assert make_model(revision, SMALL).refusal(request(60, 5, output_len=1)) is None
