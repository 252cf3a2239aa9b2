"""States and requests of every system: how they begin, what they show, what they refuse."""

from typing import Any

import pytest
from msgspec.structs import astuple

from schedproof.model.llmservingsim import state as llmservingsim
from schedproof.model.nano_vllm import state as nano_vllm
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.model.spyre import state as spyre
from schedproof.model.systems import make_model
from schedproof.model.vllm import state as vllm

SMALL: dict[str, dict[str, Any]] = {
    "spyre": {"block_size": 4, "chunk_size": 8, "max_model_len": 64, "max_batch_tkv": 256},
    "vllm": {"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64}
    | {"enable_prefix_caching": False},
    "nano_vllm": {"block_size": 4, "num_blocks": 16, "max_num_batched_tokens": 16},
    "llmservingsim": {"block_size": 4, "max_num_batched_tokens": 16}
    | {"enable_prefix_caching": False},
}
REVISIONS = [
    *(("spyre", revision) for revision in ("sound", "documented", "2.1.2", "2.5.2")),
    *(("vllm", "documented"), ("nano_vllm", "documented"), ("nano_vllm", "0.2.0")),
    *(("llmservingsim", "documented"), ("llmservingsim", "head")),
]
each_revision = pytest.mark.parametrize(("system", "revision"), REVISIONS)
STATES = {"spyre": spyre, "vllm": vllm, "nano_vllm": nano_vllm, "llmservingsim": llmservingsim}
each_system = pytest.mark.parametrize("state", STATES.values(), ids=STATES)
each_that_preempts = pytest.mark.parametrize(
    "state", [vllm, nano_vllm, llmservingsim], ids=[*STATES][1:]
)


def model(system, revision, **changes):
    return make_model(system, revision, SMALL[system] | changes)


def request(prompt, max_tokens, **changes):
    content = (("s", prompt - 1), ("t", 1))
    return Request(
        **{"id": "a", "arrival": 0, "prompt": content, "max_tokens": max_tokens} | changes
    )


@each_system
def test_a_request_that_arrives_holds_and_has_done_nothing(state):
    sequence = state.Sequence("a", 5, 3, 2)
    values = astuple(sequence)
    assert values[:4] == ("a", 5, 3, 2)
    assert not any(values[4:])
    assert (sequence.content, sequence.blocks) == ((), ())


@each_system
def test_a_state_begins_empty(state):
    begun = state.State()
    assert begun.pool == Pool(None, (), 1, (), {})
    assert (begun.waiting, begun.running, begun.aborted) == ((), (), ())
    assert not any(part for part in astuple(begun) if part != begun.pool)


@each_revision
@pytest.mark.parametrize("num_blocks", [None, 100])
def test_nothing_is_anywhere_before_the_first_request(system, revision, num_blocks):
    size = num_blocks or SMALL[system].get("num_blocks")
    initial = model(system, revision, num_blocks=size).initial()
    assert initial == type(initial)(pool=Pool(size))


@each_revision
def test_a_request_enters_with_what_the_scheduler_is_told(system, revision):
    entered = model(system, revision)
    state = entered.arrive(entered.initial(), request(5, 4))
    state = entered.arrive(state, request(6, 4, id="b", output_len=2, priority=3))
    sequence = STATES[system].Sequence
    numbered = {"arrival": 1} if system in ("vllm", "llmservingsim") else {}
    ranked = {"priority": 3} if system == "vllm" else {}
    assert state.waiting == (
        sequence("a", 5, 4, 4, content=(("s", 4), ("t", 1))),
        sequence("b", 6, 4, 2, content=(("s", 5), ("t", 1)), **numbered, **ranked),
    )
    assert getattr(state, "arrived", 2) == 2


@each_system
def test_what_is_known_of_a_request_grows_with_what_it_generates(state):
    sequence = state.Sequence("a", 5, 4, 4, content=(("a", 5),))
    assert sequence.known == (("a", 5),)
    assert sequence._replace(generated=1).known == (("a", 5), ("out:a", 1))
    assert sequence._replace(generated=3).known == (("a", 5), ("out:a", 3))


@each_that_preempts
def test_rewound_a_request_keeps_what_it_generated_and_nothing_that_it_held(state):
    place = {"arrival": 7} if "arrival" in state.Sequence.__struct_fields__ else {}
    place |= {"priority": 2} if "priority" in state.Sequence.__struct_fields__ else {}
    kept = state.Sequence("a", 9, 9, 9, content=(("a", 9),), generated=1, **place)
    held = kept._replace(computed=9, prefix_hit=4, blocks=(1, 2, 3), published=2)
    assert held.rewound() == kept


@pytest.mark.parametrize("state", [vllm, llmservingsim], ids=["vllm", "llmservingsim"])
@pytest.mark.parametrize(
    ("computed", "generated", "behind", "decodes"),
    [
        (0, 0, 5, False),
        (4, 0, 1, False),  # the last token of a prompt is no decode
        (5, 1, 1, True),
        (6, 2, 1, True),
        (4, 2, 3, False),  # begun again after a preemption
        (6, 1, 0, False),  # all it knows is in flight
    ],
)
def test_a_request_decodes_when_one_token_is_left_and_it_was_one_that_it_generated(
    state, computed, generated, behind, decodes
):
    sequence = state.Sequence("a", 5, 4, 4, computed=computed, generated=generated)
    assert sequence.num_tokens == 5 + generated
    assert (sequence.num_uncomputed_tokens, sequence.decodes) == (behind, decodes)


# In the order of the fields. A pool of 100 is bounded for every revision.
STEP = "kind scheduled emitted waiting running prefilling"
SPYRE = (
    "kind scheduled emitted tkv left_pad_blocks slot_blocks waiting running prefilling"
    " finished computed blocks"
)
VLLM = f"{STEP} preempted finished computed blocks sent"
NANO = f"{STEP} preempted finished computed prefix_hit blocks free_blocks slot_blocks"
LLMSERVINGSIM = f"{VLLM.removesuffix(' sent')} prompt_throughput decode_throughput"


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
@each_revision
def test_optional_fields_are_shown_where_they_mean_something(system, revision, caching, bounded):
    always = {"spyre": SPYRE, "vllm": VLLM, "nano_vllm": NANO, "llmservingsim": LLMSERVINGSIM}
    reserves = {"spyre": revision != "2.1.2", "llmservingsim": bounded and revision != "head"}
    changes: dict[str, Any] = {"num_blocks": 100} if bounded else {}
    optional = set()
    if system != "nano_vllm":
        changes["prefix_caching" if system == "spyre" else "enable_prefix_caching"] = caching
        optional = {
            *(["paused"] if revision == "2.5.2" else []),
            *(["prefix_hit"] if caching else []),
            *(["reserved_blocks"] if reserves.get(system) else []),
            *(["free_blocks"] if bounded else []),
        }
    observes = model(system, revision, **changes).observes
    assert {*observes} == {*always[system].split()} | optional
    assert len(observes) == len({*observes})


WHOLE = "and prompts are not chunked"
NO_CHUNKS = {"enable_chunked_prefill": False}


@pytest.mark.parametrize(
    ("system", "revision", "values", "prompt", "refusal"),
    [
        ("spyre", "sound", {}, 18, None),
        ("spyre", "sound", {"max_model_len": 21}, 18, None),
        ("spyre", "sound", {"max_model_len": 20}, 18, "21 tokens exceeds max_model_len (20)"),
        ("spyre", "sound", {"max_batch_tkv": 21}, 18, None),
        ("spyre", "sound", {"max_batch_tkv": 20}, 18, "21 tokens exceeds max_batch_tkv (20)"),
        ("spyre", "sound", {"num_blocks": 6}, 18, None),
        ("spyre", "sound", {"num_blocks": 5}, 18, "21 tokens needs 6 blocks, but the pool has 5"),
        # Of several reasons the first one is given.
        (
            *("spyre", "sound", {"max_model_len": 20, "max_batch_tkv": 20, "num_blocks": 5}, 18),
            "21 tokens exceeds max_model_len (20)",
        ),
        ("vllm", "documented", {}, 18, None),
        ("vllm", "documented", {"max_model_len": 22}, 18, None),
        ("vllm", "documented", {"max_model_len": 21}, 18, "22 tokens exceeds max_model_len (21)"),
        ("vllm", "documented", {"num_blocks": 6}, 18, None),
        ("vllm", "documented", {"num_blocks": 7}, 18, None),
        (
            *("vllm", "documented", {"num_blocks": 5}, 18),
            "21 tokens needs 6 blocks, but the pool has 5",
        ),
        ("vllm", "documented", {"num_blocks": 5}, 17, None),  # the last token needs no block
        ("vllm", "documented", {"max_num_batched_tokens": 20}, 18, None),
        ("vllm", "documented", NO_CHUNKS | {"max_num_batched_tokens": 21}, 18, None),
        ("vllm", "documented", NO_CHUNKS | {"max_num_batched_tokens": 22}, 18, None),
        (
            *("vllm", "documented", NO_CHUNKS | {"max_num_batched_tokens": 20}, 18),
            f"21 tokens exceeds max_num_batched_tokens (20), {WHOLE}",
        ),
        (
            *("vllm", "documented", {"max_model_len": 21, "num_blocks": 5}, 18),
            "22 tokens exceeds max_model_len (21)",
        ),
        *(
            ("nano_vllm", revision, {"num_blocks": blocks, "max_num_batched_tokens": 99}, 18, why)
            for revision in ("documented", "0.2.0")
            for blocks, why in ((6, None), (5, "21 tokens needs 6 blocks, but the pool has 5"))
        ),
        *(
            ("nano_vllm", revision, {"num_blocks": 5, "max_num_batched_tokens": 20}, 17, None)
            for revision in ("documented", "0.2.0")
        ),
        ("nano_vllm", "documented", {"max_num_batched_tokens": 21}, 18, None),
        (
            *("nano_vllm", "documented", {"max_num_batched_tokens": 20}, 18),
            f"21 tokens exceeds max_num_batched_tokens (20), {WHOLE}",
        ),
        ("nano_vllm", "0.2.0", {"max_num_batched_tokens": 20}, 18, None),
        (
            *("nano_vllm", "documented", {"num_blocks": 5, "max_num_batched_tokens": 3}, 18),
            "21 tokens needs 6 blocks, but the pool has 5",
        ),
        ("llmservingsim", "head", {"num_blocks": 4}, 13, None),
        (
            *("llmservingsim", "head", {"num_blocks": 4}, 14),
            "17 tokens needs 5 blocks, but the pool has 4",
        ),
        ("llmservingsim", "head", NO_CHUNKS, 13, None),
        (
            *("llmservingsim", "head", NO_CHUNKS, 14),
            f"17 tokens exceeds max_num_batched_tokens (16), {WHOLE}",
        ),
        ("llmservingsim", "head", NO_CHUNKS | {"long_prefill_token_threshold": 16}, 14, None),
        ("llmservingsim", "head", {}, 14, None),
    ],
)
def test_what_can_never_run_is_refused_with_the_limit_that_it_exceeds(
    system, revision, values, prompt, refusal
):
    """A prompt of 18 with four tokens to generate: 22, of which the last is never computed."""
    if refusal is not None:
        last_counts = system == "vllm" and refusal.startswith("22")
        refusal = f"prompt + max_tokens {'' if last_counts else '- 1 '}= {refusal}"
    assert model(system, revision, **values).refusal(request(prompt, 4)) == refusal
