"""Paths become scenarios."""

from schedproof.model.scenario import Request
from schedproof.solver.exploration.exploration import scenario_of
from schedproof.solver.exploration.undecided import OWN, RequestMenu

ITEMS = [
    Request(id="a", arrival=0, prompt=((OWN, 3),), max_tokens=2),
    Request(id="b", arrival=0, prompt=((OWN, 3),), max_tokens=5),
    Request(id="c", arrival=0, prompt=((OWN, 9),), max_tokens=5),
]


def scenario(path, member=0, accepted=(0b11, 0b11, 0b10)):
    menu = RequestMenu(ITEMS, accepted)
    return scenario_of(path, menu, member, "spyre", "sound", {"max_batch_tkv": 40})


def test_requests_arrive_before_the_step_that_follows():
    path = [("arrive", "r0", 1), ("step", None, ()), ("step", None, ()), ("arrive", "r1", 2)]
    assert [(one.id, one.arrival) for one in scenario(path).requests] == [("r0", 0), ("r1", 2)]


def test_what_was_chosen_is_what_the_request_has():
    path = [("arrive", "r0", 0b111), ("choose", "r0", 0b011), ("choose", "r0", 0b010)]
    [request] = scenario(path).requests
    assert (request.prompt, request.max_tokens, request.output_len) == ((("r0", 3),), 5, 5)


def test_who_ends_early_has_generated_what_the_path_shows():
    path = [
        ("arrive", "r0", 0b010),
        ("step", None, (("r0", 0b010, False),)),
        ("step", None, (("r0", 0b010, True),)),
    ]
    [request] = scenario(path).requests
    assert (request.max_tokens, request.output_len) == (5, 2)


def test_aborts_are_in_their_step():
    path = [
        ("arrive", "r0", 1),
        ("arrive", "r1", 1),
        ("arrive", "r2", 1),
        ("step", ("r0", True), ()),
        ("step", ("r1", False), ()),
        ("give up", "r2"),
    ]
    aborted = [(one.abort_at, one.abort_inside) for one in scenario(path).requests]
    assert aborted == [(0, True), (1, False), (2, False)]


def test_what_nobody_looked_at_is_something_that_the_configuration_takes():
    path = [("arrive", "r0", 0b110)]
    assert scenario(path, 0, (0b11, 0b10, 0b01)).requests[0].prompt_len == 9
    assert scenario(path, 1, (0b11, 0b10, 0b01)).requests[0].prompt_len == 3


def test_a_request_is_as_important_as_the_menu_says():
    menu = RequestMenu(
        [Request(id="a", arrival=0, prompt=((OWN, 1),), max_tokens=1, priority=3)], [1]
    )
    found = scenario_of([("arrive", "r0", 1)], menu, 0, "vllm", "documented", {})
    assert [one.priority for one in found.requests] == [3]
