"""Hypothesis shrinks the numbers of a scenario that is already there."""

from msgspec.structs import replace

from schedproof.model.scenario import Request, Scenario
from schedproof.properties.minimize import minimize
from schedproof.properties.numbers_shrink import choices_of, shrink_numbers, size
from schedproof.properties.shrink import shrink


def request(number: int, prompt: int, **changes: object) -> Request:
    name = f"r{number}"
    values = {"arrival": 3 * number, "max_tokens": 30, "priority": -number, **changes}
    return Request(id=name, prompt=((name, prompt), ("x", 20)), **values)  # type: ignore[arg-type]


FOUR = Scenario(
    system="spyre",
    requests=(*(request(n, 400 + n, output_len=29) for n in range(3)), request(3, 9, abort_at=17)),
)


def neighbours(scenario: Scenario) -> bool:
    """Two prompts that differ by one token: no number alone can get smaller."""
    lengths = [one.prompt_len for one in scenario.requests]
    return len(lengths) == 2 and lengths[1] == lengths[0] + 1 and lengths[0] > 25


def test_the_scenario_itself_is_the_first_that_is_tried() -> None:
    tried: list[Scenario] = []
    shrunk = shrink_numbers(FOUR, lambda one: tried.append(one) is None and one == FOUR, 50)
    assert tried[0] == FOUR
    assert shrunk.reproduced
    assert shrunk.scenario == FOUR


def test_every_number_has_a_choice_and_the_least_possible_has_none() -> None:
    assert choices_of(FOUR)[:6] == (True, 29, 30, 400, 20, True)
    one = replace(FOUR, requests=(Request(id="r", arrival=0, prompt=(("r", 1),), max_tokens=1),))
    assert choices_of(one) == (True,)


def test_several_numbers_shrink_together() -> None:
    two = replace(FOUR, requests=FOUR.requests[:2])
    assert neighbours(two)
    assert shrink(two, neighbours, 500).requests[0].prompt_len > 300
    shrunk = shrink_numbers(two, neighbours, 500)
    assert [one.prompt_len for one in shrunk.scenario.requests] == [26, 27]
    assert neighbours(shrunk.scenario)


def test_a_request_that_is_not_needed_goes() -> None:
    shrunk = shrink_numbers(FOUR, lambda one: any(r.id == "r2" for r in one.requests), 500)
    assert [one.id for one in shrunk.scenario.requests] == ["r2"]
    assert shrunk.scenario.requests[0].max_tokens == 1


def test_what_does_not_fail_again_is_left_as_it_is_and_said() -> None:
    shrunk = shrink_numbers(FOUR, lambda one: False, 50)
    assert shrunk.scenario == FOUR
    assert not shrunk.reproduced
    assert shrunk.attempts >= 1


def test_no_more_trials_than_allowed() -> None:
    tried: list[Scenario] = []
    shrunk = shrink_numbers(FOUR, lambda one: tried.append(one) is None, 7)
    assert len(tried) == shrunk.attempts == 7


def test_every_candidate_is_a_part_of_the_scenario() -> None:
    tried: list[Scenario] = []
    shrink_numbers(FOUR, lambda one: tried.append(one) is None and len(one.requests) > 1, 200)
    for one in tried:
        assert size(one) <= size(FOUR)
        assert all(1 <= request.tokens_to_emit <= request.max_tokens for request in one.requests)


def test_both_shrinkers_in_turn_come_further_than_ours_alone() -> None:
    found = minimize(FOUR, lambda one: neighbours(replace(one, requests=one.requests[:2])), 1000)
    assert neighbours(replace(found.scenario, requests=found.scenario.requests[:2]))
    assert len(found.scenario.requests) == 2
    assert found.by_numbers
    assert [one.prompt_len for one in found.scenario.requests] == [26, 27]
    assert 0 < found.attempts <= 1000


def test_minimizing_stays_within_its_replays_and_says_when_hypothesis_saw_nothing() -> None:
    tried: list[Scenario] = []
    found = minimize(FOUR, lambda one: tried.append(one) is not None, 40)
    assert found.scenario == FOUR
    assert not found.by_numbers
    assert len(tried) == found.attempts <= 40
