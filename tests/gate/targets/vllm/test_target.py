"""vLLM's own scheduler as a target: what it decides is seen, and nothing else decides.

Each test runs on the oldest supported release, on the newest, and on the one that the reference
model follows, where they are installed.
"""

import random
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.targets import factory
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.gate.targets.vllm import engine_core
from schedproof.model.observation import FIELDS, REQUIRED
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load, select

from ..served import Step
from .served import CONFIG, RELEASES, SUPPORTED

NOT_SEEN = {
    *("tkv", "left_pad_blocks", "paused", "reserved_blocks", "slot_blocks"),
    *("prompt_throughput", "decode_throughput", "emitted_at", "parked"),
    *("encoder_inputs", "encoder_dropped", "completes", "group_blocks"),
    *("deferred", "handed_over", "over", "cache_events", "masks", "grammars"),
    "group_free_blocks",
}


def has_watermark(version):
    return version != SUPPORTED[0]


def held(step):
    return [block for blocks in step["blocks"].values() for block in blocks]


def test_an_unknown_version_is_one_line_with_those_that_are_valid():
    with pytest.raises(ReleaseError) as caught:
        parse_release("vllm==0.9.9")
    assert str(caught.value) == (
        f"vllm: version '0.9.9' is not supported; supported are {', '.join(SUPPORTED)}"
        ", and, untested, any later version from 0.18.0 on"
    )


@pytest.mark.parametrize("version", ["0.18", "0.30.0+cpu", "latest", "0.30.0 --fast", ""])
def test_a_version_is_written_as_on_the_index(version):
    with pytest.raises(ReleaseError, match="is not supported"):
        parse_release(f"vllm=={version}")


def test_a_later_version_is_taken_and_known_not_to_be_examined():
    later = parse_release("vllm==0.30.0")
    assert later is not None
    assert (later.base, later.is_examined) == ("0.30.0", False)
    listed = parse_release("vllm==0.28.0")
    assert listed is not None
    assert listed.is_examined


def test_no_file_beside_a_target_hides_a_package():
    # The folder of a script comes first on its path.
    own = {path.stem for path in Path(factory.__file__).parent.glob("*.py")}
    assert own.isdisjoint({"vllm", "torch", "sendnn_inference", *sys.stdlib_module_names})


def test_it_says_what_it_is_and_what_it_shows(vllm):
    reply = vllm.start()
    assert (reply["name"], reply["version"]) == ("vllm", vllm.version)
    assert set(reply["observes"]) == FIELDS - REQUIRED - NOT_SEEN - {"prefix_hit"}
    cached = vllm.start(enable_prefix_caching=True, num_blocks=None)
    assert set(cached["observes"]) == FIELDS - REQUIRED - NOT_SEEN - {"free_blocks"}
    step = vllm.step()
    assert step["kind"] == "idle"
    assert set(step) == set(cached["observes"]) | REQUIRED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_blocks": 0}, "$.config.num_blocks is 0; valid: an integer of at least 1, or null"),
        ({"block_size": True}, "$.config.block_size is true; valid: an integer of at least 1"),
        ({"policy": "lifo"}, '$.config.policy is "lifo"; valid: "fcfs" or "priority"'),
        (
            {"watermark": 1},
            "$.config.watermark is 1; valid: a number of at least 0 and less than 1",
        ),
        ({"enable_prefix_caching": 1}, "$.config.enable_prefix_caching is 1; valid: true or"),
        ({"colour": "red"}, "$.config.colour: unknown key; valid keys are block_size, num_blocks"),
        (
            {"max_num_seqs": 17},
            "$.config.max_num_batched_tokens is 16; {release} refuses it: max_num_batched_tokens "
            "(16) must be greater than or equal to max_num_seqs (17).",
        ),
        (
            {"enable_chunked_prefill": False},
            "$.config.max_num_batched_tokens is 16; {release} refuses it: max_num_batched_tokens "
            "(16) is smaller than max_model_len (40).",
        ),
        (
            {"max_model_len": 10**6},
            "$.config.max_model_len is 1000000; {release} refuses it: User-specified max_model_len",
        ),
        (
            {"num_blocks": None, "block_size": 1, "max_model_len": 100_000},
            "$.config.num_blocks is null; valid: a number of blocks: the pool that stands in for "
            "an unbounded one would have 6700001",
        ),
    ],
)
def test_what_vllm_cannot_honour_is_refused_at_its_key(vllm, changes, says):
    reply = vllm.start(**changes)
    assert (reply["ok"], reply["error"]) == (False, "config")
    assert reply["message"].startswith(says.replace("{release}", f"vllm {vllm.version}"))
    assert "\n" not in reply["message"]


def test_an_option_that_a_release_lacks_is_refused_and_not_dropped(vllm):
    reply = vllm.start(watermark=0.1)
    if has_watermark(vllm.version):
        assert reply["ok"]
    else:
        assert reply["message"] == (
            f"$.config.watermark is 0.1; valid: 0 (vllm {vllm.version} has no such option)"
        )


def test_a_missing_key_and_another_system_are_refused(vllm):
    fewer = {key: value for key, value in CONFIG.items() if key != "policy"}
    reply = vllm.pipe.start("vllm", "documented", fewer)
    assert reply["message"] == '$.config.policy is missing; valid: "fcfs" or "priority"'
    reply = vllm.pipe.start("spyre", "sound", {})
    assert reply["message"] == '$.system is "spyre"; valid: "vllm"'


def test_after_a_refusal_nothing_is_started(vllm):
    vllm.begin()
    assert not vllm.start(num_blocks=0)["ok"]
    assert vllm.pipe.step()["error"] == "protocol"


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "says"),
    [
        ([["r0", 40]], 1, "output tokens"),
        ([["r0", 1]], 41, "cannot be greater than max_total_tokens"),
        ([], 1, "The decoder prompt cannot be empty"),
    ],
)
def test_what_vllm_refuses_at_its_front_door_is_rejected(vllm, prompt, max_tokens, says):
    vllm.begin()
    reply = vllm.pipe.add({"id": "r0", "prompt": prompt, "max_tokens": max_tokens})
    assert (reply["ok"], reply["error"]) == (False, "rejected")
    assert reply["message"].startswith(f"vllm {vllm.version} refuses the request: ")
    assert says in reply["message"]
    assert vllm.step()["waiting"] == []


def test_from_0_33_on_a_prompt_and_its_answer_may_be_too_long_together(vllm):
    vllm.begin()
    reply = vllm.pipe.add({"id": "r0", "prompt": [["r0", 30]], "max_tokens": 11})
    assert reply["ok"] == (vllm.version == "0.33.0")


def test_a_request_that_is_no_request_is_a_protocol_error(vllm):
    vllm.begin()
    for broken in ({"id": "r0"}, {"id": "r0", "prompt": [["r0", 1]], "max_tokens": 0}):
        assert vllm.pipe.add(broken)["error"] == "protocol"


def test_a_live_id_is_not_taken_twice_and_a_finished_one_may_be(vllm):
    vllm.begin()
    vllm.ask("r0", max_tokens=1)
    reply = vllm.pipe.add({"id": "r0", "prompt": [["r0", 4]], "max_tokens": 1})
    assert reply["message"] == "a live request already has the id 'r0'"
    assert vllm.step()["finished"] == {"r0": "length"}
    vllm.ask("r0", max_tokens=1)
    assert vllm.step()["finished"] == {"r0": "length"}


def test_what_never_fits_is_accepted_as_vllm_accepts_it(vllm):
    reply = vllm.start(num_blocks=3, max_model_len=16)
    if vllm.version == RELEASES[2]:  # it starts with no request that the pool cannot hold
        assert reply["error"] == "config"
        return
    assert reply["ok"]
    vllm.ask("r0", ("r0", 13), max_tokens=1)
    vllm.ask("r1", max_tokens=1)
    step = vllm.step()
    assert (step["kind"], step["waiting"]) == ("idle", ["r0", "r1"])


# By release, the longest max_model_len that it starts with if the pool has 3 blocks of 4.
LONGEST = {"0.19.1": 40, "0.28.0": 16, "0.33.0": 12}


def test_a_pool_that_the_release_does_not_start_with_is_refused(vllm):
    longest = LONGEST[vllm.version]
    starts = vllm.start(num_blocks=3, max_model_len=longest)
    by = f"vllm {vllm.version} get_kv_cache_configs"
    why = f"block_size 4 needs an attention kernel that supports it; {by} accepts everything else"
    assert starts["start_up"] == {"starts": None, "why": why}
    if longest < 40:
        refused = vllm.start(num_blocks=3, max_model_len=longest + 1)
        assert refused["message"] == (
            f"$.config.num_blocks is 3; vllm {vllm.version} does not start with max_model_len "
            f"{longest + 1} (get_kv_cache_configs: Based on the available memory, the estimated "
            f"maximum model length is {longest})"
        )


def test_a_pool_without_bounds_starts(vllm):
    starts = vllm.start(block_size=16, num_blocks=None, max_model_len=4000)
    assert starts["start_up"]["starts"] is True


def test_each_stage_of_a_pipeline_plans_its_own_cache(vllm):
    starts = vllm.start(block_size=16, num_blocks=3, pipeline_parallel_size=3)
    assert starts["start_up"]["starts"] is True


@pytest.mark.parametrize(("budget", "size"), [(8, 8), (16, 20), (20, 16)])
def test_an_encoder_that_no_model_gives_is_refused(vllm, budget, size):
    refused = vllm.start(max_num_encoder_input_tokens=budget, encoder_cache_size=size)
    assert refused["error"] == "config"
    assert f"vllm {vllm.version} derives it (compute_mm_encoder_budget) from" in refused["message"]


@pytest.mark.parametrize("size", [16, 20])
def test_an_encoder_that_a_model_gives_starts(vllm, size):
    assert vllm.start(max_num_encoder_input_tokens=size, encoder_cache_size=size)["ok"]


def test_a_prompt_in_chunks_then_one_token_a_step(vllm):
    vllm.begin()
    vllm.ask("r0", ("r0", 20), max_tokens=3)
    first, second, third, fourth = (vllm.step() for _ in range(4))
    assert (first["kind"], first["scheduled"], first["emitted"]) == ("prefill", {"r0": 16}, {})
    assert (first["running"], first["prefilling"]) == (["r0"], ["r0"])
    assert first["computed"] == {"r0": 16}
    assert (second["kind"], second["scheduled"]) == ("prefill", {"r0": 4})
    assert (second["emitted"], second["prefilling"]) == ({"r0": 1}, [])
    assert (third["kind"], third["scheduled"]) == ("decode", {"r0": 1})
    assert len(third["blocks"]["r0"]) == 6
    assert (fourth["emitted"], fourth["finished"]) == ({"r0": 1}, {"r0": "length"})
    assert (fourth["running"], fourth["computed"], fourth["blocks"]) == ([], {}, {})
    assert fourth["free_blocks"] == 12


def test_who_decodes_goes_before_who_prefills(vllm):
    vllm.begin()
    vllm.ask("r0", max_tokens=9)
    vllm.step()
    vllm.ask("r1", ("r1", 20), max_tokens=2)
    vllm.ask("r2", max_tokens=2)
    step = vllm.step()
    assert list(step["scheduled"].items()) == [("r0", 1), ("r1", 15)]
    assert (step["kind"], step["running"], step["waiting"]) == ("mixed", ["r0", "r1"], ["r2"])


def test_a_threshold_makes_chunks_smaller_while_others_are_there(vllm):
    vllm.begin(long_prefill_token_threshold=5)
    vllm.ask("r0", max_tokens=1)
    vllm.ask("r1", max_tokens=1)
    step = vllm.step()
    assert step["scheduled"] == {"r0": 5, "r1": 5}
    assert step["prefilling"] == ["r0", "r1"]


def test_without_chunks_a_prompt_waits_until_all_of_it_fits(vllm):
    vllm.begin(enable_chunked_prefill=False, max_num_batched_tokens=16, max_model_len=16)
    for name in ("r0", "r1", "r2"):
        vllm.ask(name, ("x", 7), max_tokens=1)
    step = vllm.step()
    assert (step["scheduled"], step["waiting"]) == ({"r0": 7, "r1": 7}, ["r2"])


def test_a_request_ends_by_eos_where_it_is_shorter_than_allowed(vllm):
    vllm.begin()
    vllm.ask("short", max_tokens=5, output_len=3)
    vllm.ask("long", max_tokens=3, output_len=3)
    steps = vllm.finish()
    assert steps[2]["finished"] == {"short": "eos", "long": "length"}
    assert sum(step["emitted"].get("short", 0) for step in steps) == 3


def test_the_longest_request_ends_at_max_model_len(vllm):
    vllm.begin()
    vllm.ask("r0", ("r0", 10), max_tokens=30)
    steps = vllm.finish()
    assert sum(len(step["emitted"]) for step in steps) == 30
    assert steps[-1]["finished"] == {"r0": "length"}


def test_without_a_free_block_the_last_one_in_loses_its_blocks(vllm):
    vllm.begin(num_blocks=6)
    vllm.ask("r0", max_tokens=8)
    vllm.ask("r1", max_tokens=8)
    steps = vllm.finish()
    at = next(i for i, step in enumerate(steps) if step["preempted"])
    before, step, after = steps[at - 1 : at + 2]
    # 8 tokens of the prompt, and four generated ones that are computed: r0 needs a fourth block.
    assert before["computed"] == {"r0": 12, "r1": 12}
    assert (step["scheduled"], step["preempted"]) == ({"r0": 1}, ["r1"])
    assert (step["running"], step["waiting"]) == (["r0"], ["r1"])
    assert (step["computed"], set(step["blocks"])) == ({"r0": 13}, {"r0"})
    assert step["free_blocks"] == 2
    assert after["waiting"] == ["r1"]  # its 13 tokens need four blocks
    resumed = next(step for step in steps[at:] if "r1" in step["scheduled"])
    assert resumed["scheduled"] == {"r1": 13}
    assert resumed["kind"] == "prefill"
    assert [step["finished"] for step in steps if step["finished"]] == [
        {"r0": "length"},
        {"r1": "length"},
    ]


def test_a_step_that_preempts_admits_nobody(vllm):
    vllm.begin(num_blocks=6)
    vllm.ask("r0", max_tokens=8)
    vllm.ask("r1", max_tokens=8)
    for _ in range(5):
        vllm.step()
    vllm.ask("r2", ("r2", 1), max_tokens=1)
    step = vllm.step()
    assert step["preempted"] == ["r1"]
    assert (step["free_blocks"], step["waiting"]) == (2, ["r1", "r2"])


def test_a_prompt_hits_what_another_computes_in_the_same_step(vllm):
    vllm.begin(enable_prefix_caching=True)
    vllm.ask("r0", ("system", 8), ("r0", 3), max_tokens=2)
    vllm.ask("r1", ("system", 8), ("r1", 2), max_tokens=2)
    step = vllm.step()
    assert (step["scheduled"], step["prefix_hit"]) == ({"r0": 11, "r1": 2}, {"r1": 8})
    assert step["computed"] == {"r0": 11, "r1": 10}
    assert step["blocks"]["r0"][:2] == step["blocks"]["r1"][:2]
    assert step["free_blocks"] == 12 - len(set(held(step)))


@pytest.mark.parametrize(("length", "hit"), [(4, 0), (7, 4), (8, 4), (9, 8)])
def test_a_hit_is_whole_blocks_and_never_the_last_token(vllm, length, hit):
    vllm.begin(enable_prefix_caching=True)
    vllm.ask("first", ("same", 16), max_tokens=1)
    vllm.step()
    vllm.ask("second", ("same", length), max_tokens=2)
    step = vllm.step()
    assert step["prefix_hit"] == ({"second": hit} if hit else {})
    assert step["scheduled"] == {"second": length - hit}


def test_what_was_generated_can_be_hit(vllm):
    vllm.begin(enable_prefix_caching=True)
    vllm.ask("r0", ("r0", 6), max_tokens=8, output_len=7)
    vllm.finish()
    # Of 13 known tokens 12 were computed; the last one is EOS.
    vllm.ask("r1", ("r0", 6), ("out:r0", 6), ("r1", 3), max_tokens=1)
    vllm.ask("r2", ("r0", 6), ("out:r2", 6), ("r2", 3), max_tokens=2)
    assert vllm.step()["scheduled"] == {"r1": 3, "r2": 11}


def test_who_is_resumed_hits_what_it_computed_before(vllm):
    vllm.begin(num_blocks=6, enable_prefix_caching=True)
    vllm.ask("r0", max_tokens=8)
    vllm.ask("r1", max_tokens=8)
    steps = vllm.finish()
    at = next(i for i, step in enumerate(steps) if step["preempted"])
    assert all(step["prefix_hit"] == {} for step in steps[:at])
    resumed = next(step for step in steps[at:] if "r1" in step["scheduled"])
    # r0 has taken one of the three blocks since: the last of them.
    assert resumed["prefix_hit"] == {"r1": 8}
    assert resumed["scheduled"] == {"r1": 5}


def test_without_the_cache_nothing_is_hit(vllm):
    vllm.begin()
    vllm.ask("r0", ("same", 8), max_tokens=1)
    vllm.ask("r1", ("same", 8), max_tokens=1)
    assert vllm.step()["scheduled"] == {"r0": 8, "r1": 8}


def test_the_more_important_is_admitted_first_then_who_came_first(vllm):
    vllm.begin(policy="priority", max_num_seqs=1)
    for name, priority in (("b", 1), ("c", 1), ("z", 0), ("a", 1)):
        vllm.ask(name, max_tokens=1, priority=priority)
    steps = vllm.finish()
    assert steps[0]["waiting"] == ["b", "c", "a"]
    assert [name for step in steps for name in step["finished"]] == ["z", "b", "c", "a"]


def test_priority_means_nothing_first_come_first_served(vllm):
    vllm.begin(max_num_seqs=1)
    vllm.ask("r0", max_tokens=1, priority=7)
    vllm.ask("r1", max_tokens=1, priority=0)
    assert vllm.step()["scheduled"] == {"r0": 8}


def test_the_least_important_is_preempted_though_it_stands_in_front(vllm):
    vllm.begin(policy="priority", num_blocks=5)
    vllm.ask("r0", max_tokens=9, priority=1)
    vllm.step()
    vllm.ask("r1", max_tokens=9, priority=0)
    assert vllm.step()["free_blocks"] == 0
    # r0 has had its turn in this step when r1 finds no block: it loses it again.
    step = vllm.step()
    assert (step["scheduled"], step["preempted"]) == ({"r1": 1}, ["r0"])
    assert (step["running"], step["waiting"], step["emitted"]) == (["r1"], ["r0"], {"r1": 1})
    assert step["free_blocks"] == 2


def test_who_is_its_own_victim_ends_the_step_or_lets_the_others_go_on(vllm):
    vllm.begin(policy="priority", num_blocks=6)
    vllm.ask("r0", max_tokens=9, priority=1)
    vllm.step()
    vllm.ask("r1", max_tokens=9, priority=0)
    for _ in range(4):
        assert vllm.step()["preempted"] == []
    step = vllm.step()
    assert (step["preempted"], step["running"], step["free_blocks"]) == (["r0"], ["r1"], 3)
    goes_on = vllm.version == "0.33.0"
    assert step["scheduled"] == ({"r1": 1} if goes_on else {})
    assert step["kind"] == ("decode" if goes_on else "idle")


def test_a_victim_hits_what_it_was_given_room_for_and_did_not_compute(vllm):
    # A fault of vLLM: the chunk of this step is in the cache by its content before it is computed,
    # and stays there when its request loses its turn to a more important one.
    vllm.begin(
        policy="priority",
        num_blocks=9,
        max_num_batched_tokens=32,
        long_prefill_token_threshold=8,
        enable_prefix_caching=True,
    )
    vllm.ask("other", ("other", 1), max_tokens=4)
    vllm.ask("r0", ("r0", 30), max_tokens=2, priority=1)
    vllm.step()
    vllm.ask("r1", max_tokens=3)
    before = vllm.step()
    step = vllm.step()
    assert (step["preempted"], step["scheduled"]) == (["r0"], {"other": 1, "r1": 1})
    assert before["computed"]["r0"] == 16
    resumed = next(step for step in vllm.finish() if "r0" in step["scheduled"])
    assert resumed["prefix_hit"] == {"r0": 20}


def test_the_watermark_keeps_blocks_free_while_somebody_runs(vllm):
    if not has_watermark(vllm.version):
        pytest.skip(f"vllm {vllm.version} has no watermark")
    vllm.begin(watermark=0.3, num_blocks=10, max_num_batched_tokens=40)
    vllm.ask("r0", ("r0", 16), max_tokens=3)
    vllm.ask("r1", ("r1", 16), max_tokens=3)
    steps = vllm.finish()
    # r1 needs 4 of 6 free blocks, and 3 are to stay free.
    assert (steps[0]["scheduled"], steps[0]["free_blocks"]) == ({"r0": 16}, 6)
    assert [step["waiting"] for step in steps[:4]] == [["r1"], ["r1"], ["r1"], []]
    vllm.begin(watermark=0.3, num_blocks=10, max_num_batched_tokens=40)
    vllm.ask("alone", ("r0", 39), max_tokens=1)
    assert vllm.step()["scheduled"] == {"alone": 39}


def test_the_watermark_is_a_share_of_all_blocks_the_null_block_among_them(vllm):
    if not has_watermark(vllm.version):
        pytest.skip(f"vllm {vllm.version} has no watermark")
    vllm.begin(watermark=0.2, num_blocks=9, max_num_batched_tokens=40)
    vllm.ask("r0", ("r0", 16), max_tokens=3)
    vllm.ask("r1", ("r1", 16), max_tokens=3)
    # r1 needs 4 of 5 free blocks, and 2 of 10 are to stay free; of 9 it would be 1.
    assert vllm.step()["scheduled"] == {"r0": 16}


@pytest.mark.slow
def test_a_start_says_what_the_release_does_by_default(vllm):
    said = vllm.start()["defaults"]
    assert said.pop("watermark", 0.0) == 0.0
    assert said == {
        "policy": "fcfs",
        "reserve_full_isl": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
    }


def test_the_watermark_stays_out_of_the_way_of_an_unbounded_pool(vllm):
    if not has_watermark(vllm.version):
        pytest.skip(f"vllm {vllm.version} has no watermark")
    vllm.begin(watermark=0.9, num_blocks=None, max_num_batched_tokens=117)
    for name in ("r0", "r1", "r2"):
        vllm.ask(name, (name, 39), max_tokens=1)
    assert vllm.step()["scheduled"] == {"r0": 39, "r1": 39, "r2": 39}


@pytest.mark.parametrize("reserve", [True, False])
def test_the_full_sequence_must_fit_or_only_its_first_chunk(vllm, reserve):
    vllm.begin(num_blocks=5, max_num_batched_tokens=12, reserve_full_isl=reserve)
    vllm.ask("r0", max_tokens=9)
    vllm.ask("r1", ("r1", 16), max_tokens=2)
    step = vllm.step()
    # Three of five blocks are free: room for the 4 tokens that are left of the budget.
    assert step["scheduled"] == ({"r0": 8} if reserve else {"r0": 8, "r1": 4})


def test_the_full_sequence_counts_what_is_hit_and_held_as_there(vllm):
    vllm.begin(num_blocks=5, enable_prefix_caching=True)
    vllm.ask("r0", ("system", 12), max_tokens=8)
    vllm.ask("r1", ("system", 12), ("r1", 7), max_tokens=1)
    step = vllm.step()
    assert step["scheduled"] == {"r0": 12, "r1": 4}
    assert (step["prefix_hit"], step["free_blocks"]) == ({"r1": 12}, 1)


def test_an_abort_before_a_step_is_reported_in_it(vllm):
    vllm.begin()
    vllm.ask("r0", max_tokens=9)
    vllm.ask("r1", max_tokens=9)
    vllm.step()
    vllm.abort("r0")
    vllm.abort("none_there")
    step = vllm.step()
    assert (step["scheduled"], step["finished"]) == ({"r1": 1}, {"r0": "aborted"})
    assert set(step["blocks"]) == {"r1"}
    vllm.abort("r0")
    assert vllm.step()["finished"] == {}


def test_an_abort_of_who_waits_leaves_the_others_in_order(vllm):
    vllm.begin(max_num_seqs=1)
    for name in ("r0", "r1", "r2"):
        vllm.ask(name, max_tokens=5)
    vllm.step()
    vllm.abort("r1")
    step = vllm.step()
    assert (step["waiting"], step["finished"]) == (["r2"], {"r1": "aborted"})


def test_an_abort_inside_a_step_comes_after_the_decision(vllm):
    vllm.begin()
    vllm.ask("r0", max_tokens=9)
    vllm.ask("r1", max_tokens=2)
    vllm.step()
    vllm.abort("r0", inside=True)
    step = vllm.step()
    assert step["scheduled"] == {"r0": 1, "r1": 1}
    assert (step["emitted"], step["finished"]) == ({"r1": 1}, {"r0": "aborted", "r1": "length"})
    assert (step["running"], step["blocks"], step["free_blocks"]) == ([], {}, 12)


def episode(vllm, seed, **changes):
    """Fourteen requests that come and go at random, with aborts before and inside steps."""
    rng = random.Random(seed)
    vllm.begin(num_blocks=9, max_num_seqs=4, **changes)
    steps: list[Step] = []
    for number in range(14):
        name = f"r{number}"
        shared = rng.randint(1, 12)
        priority = rng.randint(0, 2)
        prompt = (("system", shared), (name, rng.randint(1, 8)))
        vllm.ask(name, *prompt, max_tokens=rng.randint(1, 14), priority=priority)
        if rng.random() < 0.3:
            vllm.abort(f"r{rng.randint(0, number)}", inside=rng.random() < 0.5)
        steps += [vllm.step() for _ in range(rng.randint(0, 4))]
    return steps + vllm.finish()


EPISODES = [
    {"enable_prefix_caching": caching, "policy": policy, "reserve_full_isl": policy == "fcfs"}
    for caching in (False, True)
    for policy in ("fcfs", "priority")
]


@pytest.mark.parametrize("changes", EPISODES)
def test_every_block_is_free_or_held_in_every_step(vllm, changes):
    for seed in range(5):
        steps = episode(vllm, seed, **changes)
        assert any(step["preempted"] for step in steps)
        for step in steps:
            assert step["free_blocks"] + len(set(held(step))) == 9
            assert set(held(step)) <= set(range(1, 10))
            assert changes["enable_prefix_caching"] or len(held(step)) == len(set(held(step)))
            for name, blocks in step["blocks"].items():
                assert len(blocks) == -(-step["computed"][name] // 4)
        assert steps[-1]["free_blocks"] == 9


@pytest.mark.parametrize("changes", EPISODES)
def test_every_step_adds_up(vllm, changes):
    steps = episode(vllm, 7, **changes)
    for before, step in pairwise(steps):
        assert sum(step["scheduled"].values()) <= 16
        assert len(step["running"]) <= 4
        assert set(step["emitted"]) <= set(step["scheduled"])
        assert set(step["computed"]) == set(step["blocks"]) == set(step["running"])
        assert set(step["preempted"]) <= set(before["running"]) & set(step["waiting"])
        for name in step["running"]:
            start = before["computed"].get(name) or step.get("prefix_hit", {}).get(name, 0)
            assert step["computed"][name] == start + step["scheduled"].get(name, 0)


def test_an_unbounded_pool_preempts_nobody(vllm):
    vllm.begin(num_blocks=None, max_num_seqs=16)
    for number in range(16):
        vllm.ask(f"r{number}", (f"r{number}", 10), max_tokens=30)
    steps = vllm.finish()
    assert not any(step["preempted"] for step in steps)
    assert sum(len(step["finished"]) for step in steps) == 16


def test_an_unbounded_pool_says_when_it_would_forget(vllm):
    longest = {"max_model_len": 1000, "max_num_batched_tokens": 1000, "block_size": 1}
    vllm.begin(num_blocks=None, enable_prefix_caching=True, max_num_seqs=1, **longest)
    for number in range(65):
        vllm.ask(f"r{number}", ("same", 999), max_tokens=1)
    reply = vllm.pipe.add({"id": "more", "prompt": [["same", 3]], "max_tokens": 1})
    assert reply["message"] == (
        "refused by the target: the requests so far fill 65000 of the 65001 blocks that "
        "represent an unbounded pool; set num_blocks"
    )


def test_a_start_leaves_nothing_of_what_was_before(vllm):
    settings = EPISODES[-1]
    first = episode(vllm, 3, **settings)
    vllm.begin(block_size=1, num_blocks=40, enable_prefix_caching=True)
    vllm.ask("r0", ("system", 12), max_tokens=9)
    vllm.step()
    vllm.abort("r0", inside=True)
    assert episode(vllm, 3, **settings) == first
    assert vllm.pipe.stop() == {"ok": True}
    assert episode(vllm, 3, **settings) == first


def test_drafts_are_computed_with_the_last_token_and_those_that_are_right_come_out(vllm):
    vllm.begin(num_speculative_tokens=3)
    vllm.ask("a", max_tokens=9, accepted=[2, 0])
    steps = vllm.finish()
    assert [step["scheduled"]["a"] for step in steps] == [8, 4, 4, 4, 4]
    assert [step["emitted"]["a"] for step in steps] == [1, 3, 1, 3, 1]
    assert [step["computed"].get("a") for step in steps] == [8, 11, 12, 15, None]


@pytest.mark.parametrize(("lookahead", "blocks"), [(0, 3), (3, 4)])
def test_a_drafter_of_its_own_needs_blocks_ahead(vllm, lookahead, blocks):
    vllm.begin(num_speculative_tokens=3, num_lookahead_tokens=lookahead)
    vllm.ask("a", max_tokens=9)
    vllm.step()
    assert len(vllm.step()["blocks"]["a"]) == blocks


def test_a_hit_with_a_drafter_of_its_own_ends_where_the_drafter_read_the_same_token(vllm):
    vllm.begin(num_speculative_tokens=2, num_lookahead_tokens=2, enable_prefix_caching=True)
    found = []
    for name, prompt in zip("abc", ([["p", 12]], [["p", 12]], [["p", 8], ["q", 4]]), strict=True):
        vllm.ask(name, *prompt, max_tokens=4)
        found.append(vllm.step()["prefix_hit"].get(name, 0))
        vllm.finish()
    assert found == ([0, 8, 4] if vllm.version == SUPPORTED[-1] else [0, 4, 4])


def test_a_request_whose_adapter_lacks_a_slot_waits_and_holds_up_no_other(vllm):
    vllm.begin(cache_partitions=True, max_loras=1)
    for name, adapter in zip("abcd", ("x", "y", None, "x"), strict=True):
        vllm.ask(name, [name, 4], max_tokens=2, **({"lora": adapter} if adapter else {}))
    assert list(vllm.step()["scheduled"]) == ["a", "c", "d"]


def test_two_adapters_may_have_one_name(vllm):
    vllm.begin(cache_partitions=True, max_loras=1)
    vllm.ask("a", ["a", 4], max_tokens=2, lora="x")
    vllm.ask("b", ["b", 4], max_tokens=2, lora="x#2")
    assert list(vllm.step()["scheduled"]) == ["a"]


def test_the_number_of_drafts_depends_on_the_number_of_requests_in_a_step(vllm):
    ranges = {"num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 4, 0]]}
    if vllm.version == SUPPORTED[0]:
        assert not vllm.start(num_speculative_tokens=3, **ranges)["ok"]
        return
    vllm.begin(num_speculative_tokens=3, **ranges)
    vllm.ask("a", max_tokens=9, accepted=[0])
    first = [vllm.step()["scheduled"]["a"] for _ in range(2)]
    vllm.ask("b", max_tokens=9, accepted=[0])
    assert (first, [vllm.step()["scheduled"]["a"] for _ in range(2)]) == ([8, 4], [4, 1])


def test_a_step_is_decided_while_the_one_before_it_is_computed(vllm):
    vllm.begin(async_scheduling=True)
    vllm.ask("a", max_tokens=3)
    steps = vllm.finish()
    assert [step["scheduled"] for step in steps] == [{"a": 8}, {"a": 1}, {"a": 1}, {}]
    assert [step["emitted_at"] for step in steps] == [{}, {"a": 0}, {"a": 1}, {"a": 2}]
    assert steps[-1]["finished"] == {"a": "length"}


def test_drafts_are_decided_ahead_and_those_that_were_wrong_are_taken_back(vllm):
    keys = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "enable_prefix_caching": False}
    vllm.begin(async_scheduling=True, **keys)
    vllm.ask("a", max_tokens=6, accepted=[1, 2])
    steps = vllm.finish()
    assert [step["scheduled"].get("a") for step in steps] == [8, 3, 3, 3]
    assert [step["emitted"].get("a") for step in steps] == [None, 1, 2, 3]
    assert [step["emitted_at"].get("a") for step in steps] == [None, 0, 1, 3]
    assert [step["computed"].get("a") for step in steps] == [8, 11, 13, None]


def test_in_a_pipeline_each_stage_computes_another_step(vllm):
    vllm.begin(pipeline_parallel_size=2)
    vllm.ask("a", max_tokens=2)
    vllm.ask("b", max_tokens=2)
    steps = vllm.finish()
    assert [list(step["scheduled"]) for step in steps] == [["a", "b"], [], ["a", "b"], []]
    assert [step["emitted_at"] for step in steps] == [{}, {"a": 0, "b": 0}, {}, {"a": 1, "b": 1}]


def test_a_fast_worker_is_done_before_the_next_decision_until_one_stays(vllm):
    vllm.begin(async_scheduling=True, early_completions=2)
    vllm.ask("a", max_tokens=5)
    steps = vllm.finish()
    assert [step["scheduled"].get("a") for step in steps] == [8, 1, 1, 1, 1, None]
    assert [step["emitted_at"].get("a") for step in steps] == [0, 1, None, 2, 3, 4]


def test_a_fast_worker_is_refused_where_every_step_completes_at_once(vllm):
    refused = vllm.start(early_completions=2)
    assert refused["error"] == "config"
    assert refused["message"].startswith("$.config.early_completions is 2; valid: 0, or any with")


@pytest.mark.parametrize("keys", [{"async_scheduling": True}, {"pipeline_parallel_size": 2}])
@pytest.mark.parametrize("inside", [False, True])
def test_of_an_aborted_request_no_token_comes(vllm, keys, inside):
    vllm.begin(**keys)
    vllm.ask("a", max_tokens=3)
    vllm.step()
    vllm.abort("a", inside=inside)
    step = vllm.step()
    assert (step["emitted"], step["finished"]) == ({}, {"a": "aborted"})


ENCODER = {
    "max_num_batched_tokens": 8,
    "max_num_encoder_input_tokens": 8,
    "encoder_cache_size": 8,
}


def test_an_encoder_computes_inputs_in_time_and_drops_what_no_request_needs(vllm):
    vllm.begin(**ENCODER)
    vllm.ask("a", ("cat", 8), ("a", 1), ("dog", 6), max_tokens=1, encoder_inputs=[0, 2])
    steps = vllm.finish()
    assert [step["scheduled"] for step in steps] == [{"a": 8}, {"a": 7}]
    assert [step["encoder_inputs"] for step in steps] == [{"a": [0]}, {"a": [2]}]
    assert [step["encoder_dropped"] for step in steps] == [[], ["cat"]]


def test_an_output_is_computed_once_for_two_requests(vllm):
    vllm.begin(**ENCODER)
    for name in "ab":
        vllm.ask(name, ("cat", 4), max_tokens=1, encoder_inputs=[0])
    step = vllm.step()
    assert (step["scheduled"], step["encoder_inputs"]) == ({"a": 4, "b": 4}, {"a": [0]})


def test_half_an_encoder_and_an_input_beyond_it_are_refused(vllm):
    refused = vllm.start(encoder_cache_size=8)
    assert refused["error"] == "config"
    assert refused["message"].startswith("$.config.max_num_encoder_input_tokens is 0; valid: at")
    vllm.begin(**ENCODER)
    asked = {"id": "a", "prompt": [["cat", 9]], "max_tokens": 1, "encoder_inputs": [0]}
    assert vllm.pipe.add(asked)["message"] == (
        "an encoder input of 9 tokens exceeds max_num_encoder_input_tokens (8) or "
        "encoder_cache_size (8)"
    )
    wrong = vllm.pipe.add(asked | {"encoder_inputs": [1]})
    assert "encoder_inputs is [1]; valid: a list of numbers of prompt segments" in wrong["message"]


@pytest.mark.slow
def test_a_request_is_parked_while_its_blocks_are_loaded(vllm):
    vllm.begin(kv_connector=True)
    vllm.ask("a", max_tokens=2, external_tokens=8, load_steps=1)
    steps = vllm.finish()
    assert [step["parked"] for step in steps] == [["a"], ["a"], [], []]
    assert [step["scheduled"] for step in steps] == [{}, {}, {"a": 1}, {"a": 1}]
    assert len({str(step["blocks"]) for step in steps[:2]}) == 1


@pytest.mark.parametrize("inside", [False, True])
def test_blocks_of_an_aborted_load_are_free_when_it_has_landed(vllm, inside):
    vllm.begin(kv_connector=True, num_blocks=8)
    vllm.ask("a", max_tokens=2, external_tokens=8, load_steps=3)
    held = vllm.step()
    vllm.abort("a", inside=inside)
    seen = [vllm.step() for _ in range(3)]
    assert seen[0]["finished"] == {"a": "aborted"}
    assert [step["free_blocks"] for step in seen] == [held["free_blocks"]] * 2 + [8]
    assert "a" not in seen[0]["computed"]


@pytest.mark.parametrize(("fails_at", "computes"), [(4, 4), (0, 8)])
def test_what_has_failed_to_load_is_computed(vllm, fails_at, computes):
    vllm.begin(kv_connector=True)
    vllm.ask("a", max_tokens=2, external_tokens=8, load_fails_at=fails_at)
    steps = vllm.finish()
    assert [step["scheduled"] for step in steps] == [{}, {"a": computes}, {"a": 1}]


def test_while_an_answer_is_deferred_others_go(vllm):
    vllm.begin(kv_connector=True)
    vllm.ask("a", max_tokens=2, external_tokens=8, load_deferrals=1)
    vllm.ask("b", max_tokens=2)
    steps = vllm.finish()
    assert [[*step["scheduled"]] for step in steps] == [["b"], ["b"], ["a"], ["a"]]


@pytest.mark.parametrize(("steps", "held"), [(0, 1), (2, 3)])
def test_blocks_of_a_request_that_has_ended_are_sent(vllm, steps, held):
    vllm.begin(kv_connector=True, num_blocks=8)
    vllm.ask("a", max_tokens=1, send_steps=steps)
    seen = [vllm.step() for _ in range(6)]
    assert [step["free_blocks"] == 8 for step in seen] == [False] * held + [True] * (6 - held)
    assert ["a" in step["blocks"] for step in seen] == [True] * held + [False] * (6 - held)


def test_blocks_that_a_decision_on_its_way_writes_come_back_with_it(vllm):
    vllm.begin(kv_connector=True, async_scheduling=True, num_blocks=8)
    for name in "ab":
        vllm.ask(name, max_tokens=9)
    vllm.step()
    vllm.abort("a", inside=True)
    held = ["a" in vllm.step()["blocks"] for _ in range(2)]
    assert held == [vllm.version != SUPPORTED[0], False]


def test_requests_that_need_blocks_in_flight_are_computed_without_end_on_one_release(vllm):
    """tests/corpus/preempted-for-nothing.json"""
    vllm.begin(kv_connector=True, async_scheduling=True, num_blocks=4, max_model_len=16)
    vllm.ask("a", max_tokens=8)
    vllm.ask("b", max_tokens=8)
    steps = [vllm.step() for _ in range(30)]
    tokens = sum(sum(step["emitted"].values()) for step in steps)
    assert tokens == (0 if vllm.version == "0.28.0" else 16)


def test_a_request_that_loses_computed_tokens_has_none_rather_than_fewer(vllm):
    """tests/corpus/padded-and-cut-computes-its-prompt-twice.json, with a prompt of one token"""
    if vllm.version == SUPPORTED[-1]:
        pytest.skip("an assertion fails instead")
    keys = {"long_prefill_token_threshold": 1, "num_speculative_tokens": 2}
    vllm.begin(block_size=1, num_blocks=None, max_num_batched_tokens=7, max_model_len=7, **keys)
    vllm.ask("a", ("a", 1), max_tokens=2, accepted=[1])
    seen = [vllm.step()]
    vllm.ask("b", ("b", 1), max_tokens=2, accepted=[0])
    seen += vllm.finish()
    assert all(count > 0 for step in seen for count in step["computed"].values())
    assert all(count >= 0 for step in seen for count in step["sent"]["computed"].values())


def test_two_that_are_loaded_leave_room_for_their_drafts_since_the_newest_release(vllm):
    """tests/corpus/loaded-without-room-for-drafts.json"""
    keys = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "enable_prefix_caching": False}
    vllm.begin(kv_connector=True, num_blocks=4, **keys)
    for name in "ab":
        vllm.ask(name, max_tokens=2, accepted=[1], external_tokens=8)
    first = vllm.step()
    assert first["parked"] == (["a"] if vllm.version == SUPPORTED[-1] else ["a", "b"])
    steps = [vllm.step() for _ in range(8)]
    tokens = sum(sum(step["emitted"].values()) for step in steps)
    assert tokens == (4 if vllm.version == SUPPORTED[-1] else 0)


def test_drafts_whose_result_is_lost_by_a_preemption_are_not_verified(vllm):
    if vllm.version == SUPPORTED[0]:
        pytest.skip("delivers the result")
    keys = {"num_speculative_tokens": 1, "num_lookahead_tokens": 1, "async_scheduling": True}
    vllm.begin(kv_connector=True, num_blocks=7, max_model_len=24, **keys)
    for name in "ab":
        vllm.ask(name, (name, 4), max_tokens=10, accepted=[1, 0])
    steps = vllm.finish()
    counts = [step["emitted"]["b"] for step in steps if "b" in step["emitted"]]
    assert any("b" in step["preempted"] for step in steps)
    # The first token comes without drafts, and so does the one after the preemption.
    assert counts == [1, 2, 1, 2, 1, 1, 2]


WINDOW = {"kind": "sliding_window", "window": 5}
GROUPS = {"kv_groups": [{"kind": "full"}, WINDOW], "max_model_len": 20, "num_blocks": 12}


def test_groups_share_the_pool_and_a_window_gives_back_what_slid_out(vllm):
    vllm.begin(**GROUPS, max_num_batched_tokens=8)
    vllm.ask("a", ("a", 16), max_tokens=3)
    first, second, third = (vllm.step() for _ in range(3))
    assert [len(step["blocks"]["a"]) for step in (first, second, third)] == [2, 4, 5]
    tables = [step["group_blocks"]["a"][0] for step in (first, second, third)]
    assert [[bool(block) for block in table] for table in tables] == [
        [True, True],
        [False, True, True, True],
        [False, False, False, True, True],
    ]
    assert [step["free_blocks"] for step in (first, second, third)] == [8, 5, 5]


def test_blocks_of_groups_have_their_own_sizes_and_a_hit_ends_with_a_block_of_each(vllm):
    groups = [{"kind": "full"}, {**WINDOW, "window": 9, "block_size": 8}]
    vllm.begin(**GROUPS | {"kv_groups": groups, "enable_prefix_caching": True})
    vllm.ask("a", ("a", 15), max_tokens=2)
    step = vllm.step()
    assert len(step["blocks"]["a"]) == 4
    assert [len(table) for table in step["group_blocks"]["a"]] == [2]
    vllm.ask("b", ("a", 15), max_tokens=2)
    assert vllm.step()["prefix_hit"] == {"b": 8}


def test_prefill_is_computed_at_intervals(vllm):
    interval = {"prefill_schedule_interval": 3}
    if vllm.version != "0.33.0":
        assert "$.config.prefill_schedule_interval is 3" in vllm.start(**interval)["message"]
        return
    vllm.begin(**interval)
    vllm.ask("a", ("a", 4), max_tokens=9)
    vllm.step()
    vllm.ask("b", ("b", 4), max_tokens=2)
    assert ["b" in vllm.step()["scheduled"] for _ in range(3)] == [False, False, True]


def test_a_request_may_be_aborted_before_the_step_after_its_reset(vllm):
    vllm.begin()
    vllm.ask("a", ("a", 4), max_tokens=9)
    vllm.step()
    assert vllm.pipe.control("reset_running_requests")["done"]
    vllm.pipe.abort("a")
    step = vllm.step()
    assert step["finished"] == {"a": "aborted"}
    assert step["blocks"] == {}


def test_an_engine_that_slept_computes_everything_again(vllm):
    vllm.begin(enable_prefix_caching=True)
    vllm.ask("a", ("a", 9), max_tokens=9)
    vllm.step()
    assert vllm.pipe.control("sleep")["done"]
    assert vllm.step()["scheduled"] == {}
    assert vllm.pipe.control("wake_up")["done"]
    assert vllm.step()["scheduled"] == {"a": 10}


BUFFER = {"kind": "circular_buffer", "block_size": 8}


def test_a_circular_buffer_is_one_block_of_a_request(vllm):
    more = GROUPS | {"kv_groups": [{"kind": "full"}, BUFFER], "enable_prefix_caching": True}
    if vllm.version != "0.33.0":
        assert "another kind than circular_buffer" in vllm.start(**more)["message"]
        return
    vllm.begin(**more)
    vllm.ask("a", ("a", 15), max_tokens=2)
    assert [len(table) for table in vllm.step()["group_blocks"]["a"]] == [1]
    vllm.ask("b", ("a", 15), max_tokens=2)
    assert vllm.step()["prefix_hit"] == {"b": 8}
    refused = vllm.start(**more, kv_connector=True)["message"]
    assert "$.config.kv_connector is true; valid: false with a circular_buffer group" in refused


def test_windows_are_retained_at_multiples_of_the_interval(vllm):
    if vllm.version != "0.33.0":
        return
    interval = {"prefix_cache_retention_interval": 8}
    vllm.begin(**GROUPS, **interval, enable_prefix_caching=True)
    vllm.ask("a", ("a", 15), max_tokens=2)
    vllm.finish()
    vllm.ask("b", ("a", 11), ("b", 2), max_tokens=2)
    assert vllm.step()["prefix_hit"] == {"b": 8}


LOADS = GROUPS | {"kv_connector": True}


def test_a_load_fills_a_window_as_far_as_the_next_step_reads_it(vllm):
    vllm.begin(**LOADS)
    vllm.ask("a", ("a", 14), max_tokens=2, external_tokens=12, load_steps=1)
    step = vllm.step()
    assert [len(step["blocks"]["a"]), step["parked"]] == [3, ["a"]]
    assert [[bool(block) for block in table] for table in step["group_blocks"]["a"]] == [
        [False, False, True]
    ]


def test_a_failed_load_of_several_groups_ends_the_engine_before_0_33(vllm):
    path = Path(__file__).parents[3] / "corpus" / "a-failed-load-of-groups.json"
    outcome = replay(vllm.pipe, read_scenario(path), select(load("vllm"), ["ALL-R01"]))
    ends = [] if vllm.version == "0.33.0" else ["ALL-R01"]
    assert [failure.rule for failure in outcome.broken] == ends


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"synchronous_loads": True}, "one group with synchronous_loads true"),
        (
            {"num_speculative_tokens": 2, "num_lookahead_tokens": 2},
            "valid: 0 with a connector and several groups",
        ),
        (
            {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}]},
            "$.config.kv_connector is true; valid: false with a mamba group",
        ),
    ],
)
def test_a_connector_and_groups_are_refused_with_what_is_not_judged(vllm, options, words):
    assert words in vllm.start(**LOADS | options)["message"]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([WINDOW], "is [{"),
        ([{"kind": "full"}, {**WINDOW, "block_size": 0}], "$.config.kv_groups[1].block_size is 0"),
        (
            [{"kind": "full"}, {"kind": "full"}],
            "valid: a list in which only the first group is full",
        ),
        ([{"kind": "full"}, {"kind": "sliding_window"}], "$.config.kv_groups[1] is "),
        ([{"kind": "full"}, {**WINDOW, "window": 1}], "$.config.kv_groups[1].window is 1"),
    ],
)
def test_groups_that_no_layers_have_are_refused(vllm, groups, words):
    refused = vllm.start(**GROUPS | {"kv_groups": groups})
    assert words in refused["message"]
    refused = vllm.start(**GROUPS, pipeline_parallel_size=2)
    assert "one group with pipeline_parallel_size 2" in refused["message"]


MAMBA = GROUPS | {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}], "enable_prefix_caching": True}


def test_mamba_layers_hold_two_states_and_chunks_end_at_block_boundaries(vllm):
    vllm.begin(**MAMBA, max_num_batched_tokens=10)
    vllm.ask("a", ("a", 14), max_tokens=3)
    steps = [vllm.step() for _ in range(4)]
    assert [step["scheduled"]["a"] for step in steps] == [8, 4, 2, 1]
    tables = [step["group_blocks"]["a"][0] for step in steps]
    assert [[bool(block) for block in table] for table in tables] == [
        [False, True],
        [False, True, True],
        [False, False, True, True],
        [False, False, False, True],
    ]


def test_mamba_layers_without_a_prefix_cache_have_a_single_state(vllm):
    vllm.begin(**MAMBA | {"enable_prefix_caching": False}, max_num_batched_tokens=10)
    vllm.ask("a", ("a", 14), max_tokens=2)
    steps = [vllm.step() for _ in range(2)]
    assert [step["scheduled"]["a"] for step in steps] == [10, 4]
    assert [len(step["group_blocks"]["a"][0]) for step in steps] == [1, 1]


def test_a_hit_may_end_inside_a_block_which_the_worker_copies(vllm):
    unit = MAMBA | {"prefix_match_unit": 2}
    if vllm.version != "0.33.0":
        assert "$.config.prefix_match_unit is 2" in vllm.start(**unit)["message"]
        return
    vllm.begin(**unit, max_num_batched_tokens=16)
    vllm.ask("a", ("s", 6), ("a", 1), max_tokens=9)
    for _ in range(4):
        vllm.step()
    vllm.ask("b", ("s", 6), ("b", 3), max_tokens=2)
    step = vllm.step()
    assert step["prefix_hit"]["b"] == 6
    copies = [copy for _, copy in step["sent"]["copies"]]
    assert copies == [step["blocks"]["b"][1], step["group_blocks"]["b"][0][1]]
    assert (
        "valid: a divisor of block_size" in vllm.start(**unit | {"prefix_match_unit": 3})["message"]
    )
    drafts = vllm.start(**unit, num_speculative_tokens=1)["message"]
    assert "valid: null without drafts" in drafts


def test_events_say_what_enters_the_cache_and_what_leaves_it(vllm):
    vllm.begin(enable_prefix_caching=True, num_blocks=3, kv_cache_events="incremental")
    vllm.ask("a", ("a", 8), max_tokens=1)
    first = vllm.step()["cache_events"]
    assert [event["kind"] for event in first["events"]] == ["stored"]
    assert {*first["events"][0]["blocks"]} == {*first["entered"]}
    assert (first["events"][0]["tokens"], first["events"][0]["block_size"]) == (8, 4)
    vllm.ask("b", ("b", 8), max_tokens=1)
    second = vllm.step()["cache_events"]
    assert [event["kind"] for event in second["events"]] == ["removed", "stored"]
    assert second["left"] == second["events"][0]["blocks"]
    assert vllm.step()["cache_events"] == {"events": [], "entered": [], "left": []}
    assert vllm.pipe.control("reset_prefix_cache")["done"]
    assert [event["kind"] for event in vllm.step()["cache_events"]["events"]] == ["cleared"]


def test_events_wait_for_a_decision_to_complete(vllm):
    vllm.begin(enable_prefix_caching=True, async_scheduling=True, kv_cache_events="incremental")
    vllm.ask("a", ("a", 8), max_tokens=4)
    assert vllm.step()["cache_events"] == {}
    assert len(vllm.step()["cache_events"]["entered"]) == 2


def test_found_blocks_are_reported_again_if_the_release_can(vllm):
    keys = {"enable_prefix_caching": True, "kv_cache_events": "full"}
    if vllm.version == SUPPORTED[0]:
        assert "does not report blocks that are found" in vllm.start(**keys)["message"]
        return
    vllm.begin(**keys)
    vllm.ask("a", ("a", 8), max_tokens=1)
    vllm.step()
    vllm.ask("b", ("a", 8), max_tokens=1)
    kinds = [event["blocks"] for event in vllm.step()["cache_events"]["events"]]
    assert len(kinds) == 2  # what it finds, and what it computes again


def test_an_engine_that_says_that_it_has_no_requests_is_not_asked_to_schedule():
    class Asleep:
        def has_requests(self):
            return False

        def schedule(self):
            raise AssertionError("the engine core would sleep")

    made = SimpleNamespace(SchedulerOutput=SimpleNamespace(make_empty=lambda: "nothing"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_core.importlib, "import_module", lambda name: made)
        assert engine_core.decide(Asleep()) == "nothing"


@pytest.mark.parametrize("connector", [None, "sends blocks"])
def test_an_engine_sleeps_while_blocks_are_sent_only_if_the_release_says_so(connector):
    class Knows:
        requests = False

        def has_finished_requests(self):
            return self.connector is not None

        def has_requests(self):
            return self.requests or self.has_finished_requests()

    class KnowsNothingOfConnectors(Knows):
        def has_finished_requests(self):
            return False

    class Mine(Knows):
        def has_finished_requests(self):
            return super().has_finished_requests()

    scheduler, earlier, mine = Knows(), KnowsNothingOfConnectors(), Mine()
    scheduler.connector = earlier.connector = mine.connector = connector
    assert engine_core.sleeps(scheduler, Knows) is (connector is None)
    assert engine_core.sleeps(mine, Knows) is (connector is None)
    assert not engine_core.sleeps(earlier, KnowsNothingOfConnectors)  # not modelled
    scheduler.requests = True
    assert not engine_core.sleeps(scheduler, Knows)


def test_mamba_layers_are_refused_with_many_drafts_and_without_chunks(vllm):
    refused = vllm.start(**MAMBA, num_speculative_tokens=64)
    assert "$.config.num_speculative_tokens is 64; valid: at most" in refused["message"]
    refused = vllm.start(**MAMBA, enable_chunked_prefill=False, max_num_batched_tokens=32)
    assert "Chunked prefill is required" in refused["message"]


def test_a_load_that_lands_for_a_request_that_is_gone_reaches_the_engine(vllm):
    path = Path(__file__).parents[3] / "corpus" / "aborted-while-it-is-loaded-and-sent.json"
    outcome = replay(vllm.pipe, read_scenario(path), select(load("vllm"), ["ALL-R01"]))
    assert [failure.rule for failure in outcome.broken] == ["ALL-R01"]
    assert "_update_from_kv_xfer_finished" in outcome.session.details


def test_block_sizes_with_which_a_release_does_not_start_are_refused(vllm):
    groups = [{"kind": "full"}, {"kind": "sliding_window", "window": 32, "block_size": 24}]
    reply = vllm.start(block_size=16, max_model_len=64, kv_groups=groups)
    assert reply["ok"] == (vllm.version != "0.19.1")
    assert reply["ok"] or "multiples of the smallest block size (16)" in reply["message"]


def test_an_assertion_at_start_up_refuses_the_configuration(vllm):
    groups = [{"kind": "full"}, {"kind": "mamba"}]
    sizes = {"block_size": 16, "max_model_len": 128, "max_num_batched_tokens": 64}
    options = {"enable_prefix_caching": True, "long_prefill_token_threshold": 7}
    reply = vllm.start(**sizes, **options, kv_groups=groups)
    assert reply["ok"] == (vllm.version != "0.19.1")
    assert reply["ok"] or "long_prefill_token_threshold >= block_size" in reply["message"]
