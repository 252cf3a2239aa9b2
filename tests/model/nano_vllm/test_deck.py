"""The walk-throughs and examples of the deck, with its blocks of 256 tokens."""

import pytest

from schedproof.model.nano_vllm.block_manager import slot

from .build import ModelRun

SYSTEM = ("system", 256)


def holders(seen, block):
    """How many block tables have this block."""
    return sum(block in table for table in seen["blocks"].values())


def four_running(**changes):
    """A, B, C and D run and hold all nine blocks; A's next token is the first of a block."""
    lengths = {"A": 256, "B": 300, "C": 1000, "D": 300} | changes
    run = ModelRun(num_blocks=9)
    for name, prompt in lengths.items():
        run.ask(name, prompt, max_tokens=2 if name == "C" else 9)
    first = run.step()
    assert (first["kind"], first["running"]) == ("prefill", ["A", "B", "C", "D"])
    assert first["blocks"]["D"] == [8, 9]
    assert first["free_blocks"] == 0
    return run


def test_without_a_free_block_for_a_the_last_one_d_is_preempted_and_the_others_decode():
    step = four_running().step()
    assert step["preempted"] == ["D"]
    assert (step["kind"], list(step["scheduled"].items())) == (
        "decode",
        [("A", 1), ("B", 1), ("C", 1)],
    )
    assert step["running"] == ["A", "B"]  # C had its last token
    assert step["waiting"] == ["D"]
    assert step["blocks"]["A"] == [1, 9]  # of the two that D gave back
    assert {"D"}.isdisjoint({*step["blocks"], *step["computed"]})


def test_a_preempted_sequence_waits_in_front_of_who_came_meanwhile():
    """E came before the step that preempts, and has no room in it."""
    run = four_running()
    run.ask("E", 10)
    assert run.step()["waiting"] == ["D", "E"]


def test_the_next_step_prefills_what_was_preempted_with_all_it_has_generated():
    """A and B cross a border together, so both blocks of D are taken; C ends and makes room."""
    run = four_running(B=512, C=1000, D=300)
    assert run.step()["preempted"] == ["D"]
    step = run.step()
    assert (step["kind"], step["scheduled"], step["prefix_hit"]["D"]) == ("prefill", {"D": 301}, 0)
    assert (step["running"], step["emitted"]) == (["A", "B", "D"], {"D": 1})


def test_blocks_that_nobody_has_taken_since_make_coming_back_cheaper():
    run = four_running()
    run.step()
    step = run.step()
    assert (step["scheduled"], step["prefix_hit"]["D"]) == ({"D": 301 - 256}, 256)
    assert step["blocks"]["D"][0] == 8


def test_token_775_of_the_table_3_7_12_2_is_at_slot_519():
    assert slot((3, 7, 12, 2), 775, 256) == 519


@pytest.mark.parametrize(
    ("position", "expected"), [(0, 768), (255, 1023), (256, 1792), (767, 3327), (768, 512)]
)
def test_a_slot_is_the_place_of_its_token_in_its_block(position, expected):
    assert slot((3, 7, 12, 2), position, 256) == expected


def test_a_shared_block_is_held_by_1_2_1_and_0_sequences_and_freed_only_at_0():
    run = ModelRun(num_blocks=4)
    run.ask("A", SYSTEM, 44, max_tokens=2)
    seen = [run.step()]
    [shared, _] = seen[0]["blocks"]["A"]
    run.ask("B", SYSTEM, 44, max_tokens=3)
    seen += run.steps(3)
    assert [holders(step, shared) for step in seen] == [1, 2, 1, 0]
    assert [step["finished"] for step in seen[2:]] == [{"A": "length"}, {"B": "length"}]
    assert [step["free_blocks"] for step in seen] == [2, 1, 2, 4]


@pytest.mark.parametrize(("rest", "fits"), [(300, True), (301, False)])
def test_prompts_that_begin_alike_skip_the_shared_block_and_it_costs_no_budget(rest, fits):
    """Of a budget of 600 B takes 100 and C 200: 300 are left, for what D does not share."""
    run = ModelRun(num_blocks=12, max_num_batched_tokens=600)
    run.ask("A", SYSTEM, 44)
    assert run.step()["scheduled"] == {"A": 300}
    for name, own in (("B", 100), ("C", 200), ("D", rest)):
        run.ask(name, SYSTEM, own)
    step = run.step()
    assert step["scheduled"] == {"B": 100, "C": 200} | ({"D": 300} if fits else {})
    assert {step["prefix_hit"][name] for name in step["scheduled"]} == {256}
    [shared] = {table[0] for table in step["blocks"].values()}
    assert holders(step, shared) == 3 + fits


def test_seven_and_six_tokens_that_share_four_are_nine_to_compute():
    """The figure's numbers, for which a block has two tokens."""
    run = ModelRun(block_size=2, num_blocks=9)
    run.ask("A", ("system", 4), 3)
    first = run.step()["scheduled"]
    run.ask("B", ("system", 4), 2)
    assert {**first, **run.step()["scheduled"]} == {"A": 7, "B": 2}


@pytest.mark.parametrize("own", [20, 200])
def test_a_prefix_of_128_tokens_is_never_cached(own):
    run = ModelRun()
    run.ask("A", ("system", 128), own)
    run.step()
    run.ask("B", ("system", 128), own)
    step = run.step()
    assert (step["scheduled"], step["prefix_hit"]["B"]) == ({"B": 128 + own}, 0)


@pytest.mark.parametrize(("prompt", "hit"), [(256, 0), (257, 256), (512, 256), (513, 512)])
def test_the_last_block_of_a_prompt_is_never_a_hit(prompt, hit):
    run = ModelRun()
    run.ask("A", ("same", 600))
    run.step()
    run.ask("B", ("same", prompt))
    step = run.step()
    assert (step["scheduled"], step["prefix_hit"]["B"]) == ({"B": prompt - hit}, hit)


def test_the_same_block_behind_another_one_is_another_block():
    run = ModelRun()
    run.ask("A", ("x", 256), ("same", 256), 10)
    run.step()
    run.ask("B", ("y", 256), ("same", 256), 10)
    assert run.step()["scheduled"] == {"B": 522}


def test_one_at_a_border_gets_a_block_one_inside_none_and_one_that_ends_frees_its_own():
    """A has 256 tokens computed and B 100; C has 511 of which EOS follows."""
    run = ModelRun(num_blocks=5)
    run.ask("A", 256)
    run.ask("B", 100)
    run.ask("C", 510, max_tokens=9, output_len=2)
    first, step = run.steps(2)
    assert (first["free_blocks"], {name: len(b) for name, b in first["blocks"].items()}) == (
        1,
        {"A": 1, "B": 1, "C": 2},
    )
    assert step["scheduled"] == step["emitted"] == {"A": 1, "B": 1, "C": 1}
    assert step["finished"] == {"C": "eos"}
    assert {name: len(blocks) for name, blocks in step["blocks"].items()} == {"A": 2, "B": 1}
    assert (step["free_blocks"], step["running"]) == (2, ["A", "B"])


def test_the_block_comes_with_the_token_after_the_border_not_with_the_last_one_before():
    """255 in the prompt: the first token generated is the 256th, the second the 257th."""
    run = ModelRun()
    run.ask("A", 255)
    assert [len(step["blocks"]["A"]) for step in run.steps(4)] == [1, 1, 2, 2]


@pytest.mark.parametrize("limits", [{"num_blocks": 4}, {"max_num_batched_tokens": 800}])
def test_a_small_request_never_passes_a_large_one(limits):
    run = ModelRun(**limits)
    run.ask("first", 300, max_tokens=3)
    run.ask("large", 700, max_tokens=3)
    run.ask("small", 10, max_tokens=3)
    first, second = run.steps(2)
    assert (first["scheduled"], first["waiting"]) == ({"first": 300}, ["large", "small"])
    order = [name for seen in (first, second, *run.steps(9)) for name in seen["scheduled"]]
    assert order.index("large") < order.index("small")


def test_who_waits_is_prefilled_before_anybody_who_runs_decodes():
    run = ModelRun()
    run.ask("A", 10)
    run.step()
    run.ask("B", 20)
    run.ask("C", 30)
    prefill, decode = run.steps(2)
    assert (prefill["kind"], prefill["scheduled"]) == ("prefill", {"B": 20, "C": 30})
    assert (decode["kind"], decode["scheduled"]) == ("decode", {"A": 1, "B": 1, "C": 1})


def test_a_step_with_no_room_for_who_waits_decodes():
    run = ModelRun(num_blocks=2)
    run.ask("A", 300)
    run.step()
    run.ask("B", 10)
    step = run.step()
    assert (step["kind"], step["scheduled"], step["waiting"]) == ("decode", {"A": 1}, ["B"])


def test_a_request_waits_is_prefilled_decodes_at_borders_gets_blocks_and_leaves_all_free():
    run = ModelRun(num_blocks=3)
    run.ask("A", 510, max_tokens=4)
    prefill, *decodes, idle = run.steps(5)
    assert (prefill["kind"], prefill["scheduled"]) == ("prefill", {"A": 510})
    assert prefill["emitted"] == {"A": 1}
    assert [step["kind"] for step in decodes] == ["decode"] * 3
    assert [step["blocks"].get("A") for step in decodes] == [[1, 2], [1, 2], None]
    assert decodes[2]["slot_blocks"] == {"A": [3]}
    assert (decodes[2]["finished"], decodes[2]["free_blocks"]) == ({"A": "length"}, 3)
    assert (idle["kind"], idle["scheduled"]) == ("idle", {})
