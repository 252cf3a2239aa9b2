"""The sizes of the runs of a gate, and in how many of them a feature occurred."""

from schedproof.gate.judging.reach import ReachSoFar, in_words
from schedproof.model.scenario import Request, Scenario


def scenario(*requests, **config):
    return Scenario(system="spyre", revision="sound", config=config, requests=requests)


PLAIN = scenario(Request(id="a", arrival=2, prompt=(("a", 70),), max_tokens=9, output_len=9))
FULL = scenario(
    Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=9, output_len=4),
    Request(id="b", arrival=1, prompt=(("a", 5),), max_tokens=2, abort_at=3, priority=1),
    num_blocks=9,
)


def reached(*scenarios):
    so_far = ReachSoFar()
    for run in scenarios:
        so_far.count(run)
    return so_far


def test_nothing_is_reached_without_a_run():
    assert ReachSoFar().result is None


def test_sizes_are_those_of_the_largest_run_and_features_are_counted_by_run():
    reach = reached(PLAIN, FULL, FULL).result
    assert reach is not None
    assert (reach.runs, reach.requests, reach.prompt_tokens) == (3, 2, 70)
    assert (reach.output_tokens, reach.last_arrival) == (9, 2)
    assert reach.features == {
        "aborts": 2,
        "aborts inside a step": 0,
        "early ends": 2,
        "shared prompts": 2,
        "priorities": 2,
        "bounded pools": 2,
    }


def test_parts_of_a_gate_add_up():
    parts = reached(PLAIN)
    parts.add(reached(FULL, FULL))
    assert parts.result == reached(PLAIN, FULL, FULL).result


def test_what_never_occurred_is_said():
    reach = reached(PLAIN).result
    assert reach is not None
    assert in_words(reach) == (
        "1 runs of up to 1 requests, prompts up to 70 tokens, answers up to 9; never: aborts, "
        "aborts inside a step, early ends, shared prompts, priorities, bounded pools"
    )
    assert "aborts in 1, " in in_words(reached(PLAIN, FULL).result)
