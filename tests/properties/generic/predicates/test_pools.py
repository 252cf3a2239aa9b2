"""Groups of the KV cache, each with its own pool: the rules judge each of them."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.generic.bounds import BOUNDS
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.common import PREDICATES as COMMON

WINDOW = {"kind": "sliding_window", "window": 6, "num_blocks": 5}


def run(**keys):
    sizes = {"block_size": 4, "num_blocks": 30, "max_num_batched_tokens": 8, "max_model_len": 64}
    values = {**sizes, "kv_groups": [{"kind": "full"}, WINDOW], **keys}
    history = RunHistory(full_config("generic", "documented", values), "documented", "generic")
    for name in "ab":
        history.accept(Request(id=name, arrival=0, prompt=((name, 40),), max_tokens=4))
    return history


def step(computed, groups, free=(3,), **fields):
    blocks = {name: tuple(range(-(-tokens // 4))) for name, tokens in computed.items()}
    return Step(
        kind="prefill",
        scheduled={name: min(tokens, 8) for name, tokens in computed.items()},
        computed=computed,
        blocks=blocks,
        group_blocks={name: (tuple(table),) for name, table in groups.items()},
        free_blocks=30 - len({block for table in blocks.values() for block in table}),
        group_free_blocks=free,
        emitted={},
        finished={},
        **fields,
    )


def broken(rule, history, seen):
    return {**PREDICATES, **COMMON}[rule].broken(history, seen)


def test_the_blocks_of_a_window_add_up_to_its_pool():
    assert broken("ALL-R09", run(), step({"a": 8}, {"a": [1, 2]})) is None
    message = "2 blocks of group 1 held and 2 free, but the pool of group 1 has 5"
    assert broken("ALL-R09", run(), step({"a": 8}, {"a": [1, 2]}, free=(2,))) == message
    message = "2 blocks of group 1 held and 4 free, but the pool of group 1 has 5"
    assert broken("ALL-R09", run(), step({"a": 8}, {"a": [1, 2]}, free=(4,))) == message
    assert broken("ALL-R09", run(), step({"a": 8}, {"a": [1, 2]}, free=None)) is None


def test_an_ended_request_holds_no_block_of_a_window():
    gone = step({"a": 8}, {"a": [1, 2], "z": [3]}, free=(2,))
    assert broken("ALL-R09", run(), gone) == "z has ended, but still holds blocks"


def test_no_block_of_a_window_is_held_twice():
    assert broken("GEN-R06", run(), step({"a": 4, "b": 0}, {"a": [1], "b": [2]})) is None
    message = "block 1 of group 1 is held 2 times"
    assert broken("GEN-R06", run(), step({"a": 4, "b": 0}, {"a": [1], "b": [1]})) == message


def test_the_windows_hold_no_more_than_their_pool():
    assert broken("GEN-R07", run(), step({"a": 20}, {"a": range(1, 6)})) is None
    message = "6 blocks of group 1 are held, but its pool has 5"
    assert broken("GEN-R07", run(), step({"a": 24}, {"a": range(1, 7)})) == message


def test_a_request_has_the_blocks_of_its_window():
    assert broken("GEN-R05", run(), step({"a": 16}, {"a": [0, 0, 3, 4]})) is None
    message = "a has 16 tokens computed, but lacks block 2 of group 1, which is in its window"
    assert broken("GEN-R05", run(), step({"a": 16}, {"a": [0, 0, 0, 4]})) == message
    message = "a has 16 tokens computed, but group 1 has blocks for only 12 of them"
    assert broken("GEN-R05", run(), step({"a": 16}, {"a": [0, 0, 3]})) == message


def test_a_block_that_a_decision_in_flight_reads_is_kept():
    """The decision in flight computes the tokens 8 to 15, and reads from token 3 on."""
    ahead, kept = run(async_scheduling=True), step({"a": 16}, {"a": [1, 2, 3, 4]})
    assert broken("GEN-R05", ahead, kept) is None
    message = "a has 16 tokens computed, but lacks block 0 of group 1, which is in its window"
    assert broken("GEN-R05", ahead, step({"a": 16}, {"a": [0, 2, 3, 4]})) == message


def test_a_table_is_no_longer_than_a_request_needs():
    assert broken("GEN-R12", run(), step({"a": 4}, {"a": [1]})) is None
    message = "a has a table of 12 blocks in group 1; its prompt and max_tokens need at most 11"
    assert broken("GEN-R12", run(), step({"a": 4}, {"a": range(12)})) == message


def computing(history, *starts):
    for tokens in starts:
        history.observe(step({"a": tokens}, {"a": range(1, -(-tokens // 4) + 1)}))
    return history


def test_blocks_that_left_the_window_are_given_back_within_a_step_or_a_window():
    """At token 24, the window begins at token 19. Eight tokens later, its blocks must be gone."""
    late = [0, 0, 3, 4, 5, 6, 7, 8]
    history = computing(run(), 8, 16, 24)
    assert broken("GEN-R40", history, step({"a": 32}, {"a": late})) is None
    assert PREDICATES["GEN-R40"].exercised(history, step({"a": 32}, {"a": late}))
    message = (
        "a computes token 24, and holds block 2 at place 1 of group 1; "
        "it may hold blocks from place 2 on"
    )
    assert broken("GEN-R40", history, step({"a": 32}, {"a": [0, 2, *late[2:]]})) == message
    early = computing(run(), 8)
    assert not PREDICATES["GEN-R40"].exercised(early, step({"a": 16}, {"a": [1, 2, 3, 4]}))


@pytest.mark.parametrize(
    ("pool", "prompt", "runs", "never"),
    [(7, 40, True, False), (6, 40, False, False), (6, 20, True, False), (1, 20, False, True)],
)
def test_a_request_runs_if_it_fits_each_pool(pool, prompt, runs, never):
    """It may need its window, a step, and as much again to be given back: 22 tokens."""
    config = run(kv_groups=[{"kind": "full"}, {**WINDOW, "num_blocks": pool}]).config
    assert BOUNDS.can_run(config, prompt, 4) is runs
    assert BOUNDS.beyond(config, prompt, 4) is never
