"""Blocks of several groups are handed out in the order of the groups (V1-R90), by example."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.vllm.history import given_back_in_groups
from schedproof.properties.vllm.history.run import Returned, VllmState
from schedproof.properties.vllm.predicates.eviction_in_groups import (
    later_group_is_evicted,
    later_group_is_evicted_first,
)
from schedproof.spec.catalogue import load

from .build import book, ran, request

WINDOW = [{"kind": "full"}, {"kind": "sliding_window", "window": 9}]
# a gave back two blocks in each group, of which only the first of group 1 could be found; c gave
# back one block in group 0, in the same step.
RETURNED = {
    1: Returned("a", 4, 0, True),
    2: Returned("a", 4, 0, False),
    5: Returned("a", 4, 1, True),
    6: Returned("a", 4, 1, False),
    8: Returned("c", 4, 0, True),
}
CORPUS = Path(__file__).parents[3] / "corpus"
SCENARIO = CORPUS / "blocks-freed-late-are-evicted-in-another-order.json"


def before(**tables):
    history = book(*(request(name) for name in "bd"), kv_groups=WINDOW)
    history.last = replace(history.last, blocks=tables, group_blocks=dict.fromkeys(tables, ((),)))
    history.system_state = VllmState(returned=RETURNED)
    return history


def step(full, window, hit=0, **more):
    """b starts with these blocks."""
    shown = {"blocks": {"b": full}, "group_blocks": {"b": (window,)}, "prefix_hit": {"b": hit}}
    return ran({"b": 6}, "b", **{**shown, **more})


@pytest.mark.parametrize(
    ("full", "window", "hit", "broken"),
    [
        ((2, 1), (5, 9), 0, None),  # both blocks of group 0 are taken as well
        ((2, 9), (6, 10), 0, None),  # block 6 could not be found
        ((1, 9), (5, 10), 4, None),  # a hit is not handed out
        ((3, 9), (5, 10), 0, "gave back in group 1 and which can be found, but block 1, which a "),
        ((1, 5), (9, 10), 0, "gave back in group 1 and which can be found, but block 2, which a "),
    ],
)
def test_a_request_loses_its_blocks_of_the_first_group_first(full, window, hit, broken):
    found = later_group_is_evicted_first(before(), step(full, window, hit))
    assert (found is None) == (broken is None)
    assert found is None or broken in found


def test_the_rule_is_exercised_if_a_block_of_a_later_group_is_handed_out():
    assert later_group_is_evicted(before(), step((2, 1), (5, 9)))
    assert not later_group_is_evicted(before(), step((2, 1), (6, 9)))
    assert not later_group_is_evicted(before(), step((2, 1), (5, 9), preempted=("d",)))


def test_only_blocks_of_a_prompt_that_are_read_until_the_end_can_be_found_for_certain():
    history = book(request("a", prompt=18, computed=18, emitted=1), kv_groups=WINDOW)
    history.step = 7
    last = {"a": (1, 2, 3, 4, 5)}, {"a": ((0, 0, 6, 7, 8),)}
    history.last = replace(history.last, blocks=last[0], group_blocks=last[1])
    ended = ran({"a": 1}, blocks={}, group_blocks={}, finished={"a": "eos"}, emitted={"a": 1})
    found = given_back_in_groups.after(history, ended, {})
    # 21 tokens at most: the window of the next one begins at token 13, in block 3.
    assert [block for block, known in found.items() if known.can_be_found] == [1, 2, 3, 4, 7]
    assert {found[block].group for block in (6, 7, 8)} == {1}
    aborted = replace(ended, finished={"a": "aborted"})
    assert not any(
        r.can_be_found for r in given_back_in_groups.after(history, aborted, {}).values()
    )


@pytest.mark.parametrize(("revision", "broken"), [("documented", []), ("0.33", ["V1-R90"])])
def test_releases_free_the_groups_in_another_order_if_they_free_them_late(revision, broken):
    scenario = replace(read_scenario(SCENARIO), revision=revision, expect=None)
    rules = [rule for rule in load("vllm", revision) if rule.id == "V1-R90"]
    assert [b.rule for b in replay(ModelTarget(), scenario, rules).broken] == broken


@pytest.mark.parametrize(
    "options",
    [
        {"kv_groups": [{"kind": "full"}]},
        {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}]},
        {"enable_prefix_caching": False},
        {"prefix_cache_retention_interval": 0},
    ],
)
def test_where_it_is_unknown_what_can_be_found_nothing_is_judged(options):
    config = book(kv_groups=WINDOW).config
    assert given_back_in_groups.are_followed(config)
    assert not given_back_in_groups.are_followed({**config, **options})


def test_a_request_that_is_sent_without_blocks_that_left_its_window_hides_what_it_received():
    sent = step((3, 9), (0, 5), finished={"b": "length"})
    assert later_group_is_evicted_first(before(), step((3, 9), (0, 5))) is not None
    assert later_group_is_evicted_first(before(), sent) is None
    assert given_back_in_groups.after(before(d=(4,)), sent, RETURNED) == {}
