"""Whole runs of the scheduler: what holds in each step, and scenarios by name."""

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre.padding import blocks_for, chunk_count
from schedproof.model.target import ModelTarget

from ...golden import Arrival, add, play, started

REVISIONS = ("sound", "documented", "2.1.2")
EACH = pytest.mark.parametrize("revision", REVISIONS)
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 128}

Steps = list[dict[str, Any]]


class Run(NamedTuple):
    config: dict[str, Any]
    arrivals: list[Arrival]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    block = draw(st.sampled_from((2, 4)))
    length = 8 * block + draw(st.integers(0, 1))
    config = {
        "block_size": block,
        "chunk_size": block * draw(st.integers(1, 3)),
        "max_num_seqs": draw(st.integers(1, 4)),
        "max_model_len": length,
        "max_batch_tkv": draw(st.integers(length, 4 * length)),
        "interleave": draw(st.booleans()),
    }
    arrivals: list[Arrival] = []
    for name in range(draw(st.integers(1, 6))):
        step = (arrivals[-1].step if arrivals else 0) + draw(st.sampled_from((0, 0, 1, 3, 7)))
        prompt = draw(st.integers(1, length))
        most = draw(st.integers(1, length - prompt + 1))
        emits = draw(st.just(most) | st.integers(1, most))
        arrivals.append(Arrival(step, str(name), prompt, most, emits))
    return Run(config, arrivals)


def steps_of(revision: str, run: Run, **config: Any) -> Steps:
    return list(play(started(revision, **run.config, **config), run.arrivals))


@EACH
def test_everyone_is_served_first_come_first_served_to_the_last_token(revision: str) -> None:
    @given(runs())
    def check(run: Run) -> None:
        steps = steps_of(revision, run)
        prefills = [
            name for seen in steps if seen["kind"] == "prefill" for name in seen["scheduled"]
        ]
        assert list(dict.fromkeys(prefills)) == [one.id for one in run.arrivals]
        emitted = Counter(name for seen in steps for name in seen["emitted"])
        finished = {name: why for seen in steps for name, why in seen["finished"].items()}
        for one in run.arrivals:
            assert prefills.count(one.id) == chunk_count(one.prompt, run.config["chunk_size"])
            assert emitted[one.id] == one.output_len
            assert finished[one.id] == ("length" if one.output_len == one.max_tokens else "eos")

    check()


@EACH
def test_a_step_is_one_chunk_or_one_token_for_all_that_decode(revision: str) -> None:
    @given(runs())
    def check(run: Run) -> None:
        before: dict[str, Any] = {"running": [], "prefilling": [], "kind": "idle"}
        for seen in steps_of(revision, run):
            assert len(seen["running"]) <= run.config["max_num_seqs"]
            assert len(seen["prefilling"]) <= 1
            decoding = [name for name in before["running"] if name not in before["prefilling"]]
            if seen["kind"] == "prefill":
                assert len(seen["scheduled"]) == 1
                assert before["prefilling"] in ([], list(seen["scheduled"]))
                assert not (
                    run.config["interleave"] and before["kind"] == "prefill" and decoding
                ), "two prefill steps in a row"
            if seen["kind"] == "decode":
                assert seen["scheduled"] == dict.fromkeys(decoding, 1) == seen["emitted"]
            before = seen

    check()


@pytest.mark.parametrize("revision", ["sound", "documented"])
def test_no_step_is_idle_while_requests_are_pending(revision: str) -> None:
    @given(runs())
    def check(run: Run) -> None:
        pending: set[str] = set()
        for number, seen in enumerate(steps_of(revision, run)):
            pending |= {one.id for one in run.arrivals if one.step == number}
            assert (seen["kind"] == "idle") is (not pending)
            pending -= seen["finished"].keys()

    check()


@pytest.mark.parametrize("revision", ["sound", "2.1.2"])
def test_batch_times_tkv_never_exceeds_the_limit(revision: str) -> None:
    @given(runs())
    def check(run: Run) -> None:
        for seen in steps_of(revision, run):
            if seen["kind"] == "decode":
                assert len(seen["scheduled"]) * seen["tkv"] <= run.config["max_batch_tkv"]

    check()


@EACH
def test_a_block_belongs_to_one_request_and_holds_what_is_computed(revision: str) -> None:
    @given(runs())
    def check(run: Run) -> None:
        prompts = {one.id: one.prompt for one in run.arrivals}
        for seen in steps_of(revision, run):
            held = Counter(block for blocks in seen["blocks"].values() for block in blocks)
            assert set(held.values()) <= {1}
            assert 0 not in held
            for name, computed in seen["computed"].items():
                needed = blocks_for(computed, run.config["block_size"])
                # 2.1.2 gives the first chunk blocks for its left padding's worth of tokens too.
                ahead = revision == "2.1.2" and computed <= prompts[name]
                blocks = len(seen["blocks"][name])
                assert blocks >= needed if ahead else blocks == needed

    check()


@pytest.mark.parametrize("revision", ["sound", "documented"])
def test_a_bounded_pool_is_never_promised_twice_and_whole_again_at_the_end(revision: str) -> None:
    @given(runs(), st.integers(0, 12))
    def check(run: Run, spare: int) -> None:
        ends = [one.prompt + one.max_tokens - 1 for one in run.arrivals]
        pool = blocks_for(max(ends), run.config["block_size"]) + spare
        steps = steps_of(revision, run, num_blocks=pool)
        for seen in steps:
            held = sum(len(blocks) for blocks in seen["blocks"].values())
            assert seen["free_blocks"] == pool - held
            assert 0 <= seen["reserved_blocks"] <= seen["free_blocks"]
            assert all(block <= pool for blocks in seen["blocks"].values() for block in blocks)
        assert (steps[-1]["free_blocks"], steps[-1]["reserved_blocks"]) == (pool, 0)

    check()


THREE = [Arrival(0, "a", 6, 6), Arrival(0, "b", 18, 4), Arrival(1, "c", 3, 5)]


def aborted_at(target: ModelTarget, name: str, number: int, inside: bool) -> Steps:
    """THREE on `target`, one request aborted before or inside step `number`."""
    steps = []
    for step in range(40):
        for one in THREE:
            if one.step == step:
                add(target, one)
        if step == number:
            assert target.abort(name, inside) == {"ok": True}
        steps.append(target.step()["step"])
    return steps


@EACH
@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_abort_at_any_point_removes_the_request_and_nothing_else(
    name: str, inside: bool, revision: str
) -> None:
    """Waiting, between two chunks, in its last chunk, decoding, in its last step, finished."""
    free = steps_of(revision, Run(SMALL, THREE))
    ends = next(number for number, seen in enumerate(free) if name in seen["finished"])
    for number in range(ends + 2):
        steps = aborted_at(started(revision, **SMALL, num_blocks=64), name, number, inside)
        finished = {
            one: (n, why) for n, s in enumerate(steps) for one, why in s["finished"].items()
        }
        arrived = number >= next(one.step for one in THREE if one.id == name)
        if number > ends or not arrived:
            assert finished[name][1] == "length"
        else:
            assert finished[name] == (number, "aborted")
            for seen in steps[number:]:
                assert name not in {*seen["waiting"], *seen["running"], *seen["prefilling"]}
                assert name not in {*seen["emitted"], *seen["computed"], *seen["blocks"]}
                assert name not in seen["scheduled"] or (inside and seen is steps[number])
        emitted = Counter(one for seen in steps for one in seen["emitted"])
        for other in THREE:
            if other.id != name:
                assert (finished[other.id][1], emitted[other.id]) == ("length", other.max_tokens)
        assert (steps[-1]["free_blocks"], steps[-1]["kind"]) == (64, "idle")


def test_an_abort_inside_lets_the_computation_run_but_not_the_token_out() -> None:
    target = started("sound", **SMALL)
    add(target, Arrival(0, "a", 6, 6))
    target.step()
    target.abort("a", inside=True)
    seen = target.step()["step"]
    assert (seen["kind"], seen["scheduled"]) == ("decode", {"a": 1})
    assert (seen["emitted"], seen["finished"]) == ({}, {"a": "aborted"})


@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_blocks_of_an_aborted_request_are_handed_out_again(inside: bool) -> None:
    target = started("sound", **SMALL, num_blocks=3)
    for name in "abcd":
        add(target, Arrival(0, name, 6, 6))
        assert set(target.step()["step"]["blocks"][name]) <= {1, 2, 3}
        target.abort(name, inside)
        assert target.step()["step"]["free_blocks"] == 3


@EACH
def test_a_request_that_fits_max_model_len_exactly_runs_to_its_end(revision: str) -> None:
    target = started(revision, **(SMALL | {"max_batch_tkv": 32}))
    steps = list(play(target, [Arrival(0, "a", 20, 13)]))
    assert steps[-1]["finished"] == {"a": "length"}
    assert steps[-1]["tkv"] == 32
    too_long = {"id": "b", "prompt": [["b", 20]], "max_tokens": 14}
    assert target.add(too_long)["message"] == (
        "prompt + max_tokens - 1 = 33 tokens is beyond max_model_len (32)"
    )


@EACH
def test_with_one_slot_requests_run_one_after_the_other(revision: str) -> None:
    steps = steps_of(revision, Run(SMALL | {"max_num_seqs": 1}, THREE))
    order = [name for seen in steps for name in seen["scheduled"]]
    assert list(dict.fromkeys(order)) == ["a", "b", "c"]
    assert order == sorted(order)


@EACH
def test_without_interleaving_the_chunks_of_a_prompt_run_without_a_pause(revision: str) -> None:
    steps = steps_of(revision, Run(SMALL | {"interleave": False}, THREE[:2]))
    assert [seen["kind"] for seen in steps][:5] == ["prefill"] * 4 + ["decode"]
    steps = steps_of(revision, Run(SMALL, THREE[:2]))
    assert [seen["kind"] for seen in steps][:5] == ["prefill", "decode"] * 2 + ["prefill"]


@EACH
def test_only_2_1_2_idles_a_step_by_a_stale_tkv_while_a_request_waits(revision: str) -> None:
    """The long request finishes in step 7. For 2.1.2 the last reported tkv (22) still counts it:
    the last chunk of the other would end at 20 + 2 + 19 = 41 > 32. So nothing runs in step 8; the
    idle step resets the tkv, and step 9 does what step 8 should have done.
    """
    config = SMALL | {"chunk_size": 4}
    long, short = Arrival(0, "long", 20, 3), Arrival(0, "short", 6, 20)
    steps = steps_of(revision, Run(config, [long, short]))
    assert steps[7]["finished"] == {"long": "length"}
    assert steps[7]["prefilling"] == ["short"]
    if revision == "2.1.2":
        assert (steps[8]["kind"], steps[8]["prefilling"]) == ("idle", ["short"])
    resumes = steps[9 if revision == "2.1.2" else 8]
    assert (resumes["kind"], resumes["scheduled"]) == ("prefill", {"short": 2})


@EACH
def test_2_1_2_holds_blocks_for_the_left_padding_of_a_first_chunk(revision: str) -> None:
    """Prompt 192 in chunks of 128: the published table has 2 blocks after the first 64 tokens."""
    target = started(revision, block_size=64, chunk_size=128)
    add(target, Arrival(0, "a", 192, 2))
    seen = target.step()["step"]
    assert seen["computed"] == {"a": 64}
    assert len(seen["blocks"]["a"]) == (2 if revision == "2.1.2" else 1)
