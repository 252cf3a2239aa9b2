"""Menus and scopes: who is taken at which door, and what a scope adds to the smallest
configuration."""

import pytest

from schedproof.model.systems import full_config, make_model, resolve_revision
from schedproof.solver.decisions import DECIDED
from schedproof.solver.explored import MODELS, Asked
from schedproof.solver.scheduling import SchedulerSpace
from schedproof.solver.scope import LIMIT_KEY, LIMIT_NAME, lengths, menu_of
from schedproof.solver.systems import CHECKUP, SCOPES
from schedproof.solver.undecided import OWN

SYSTEMS = sorted(MODELS)


def test_every_length_comes_with_every_answer():
    assert lengths((1, 3), (2, 5)) == [
        (((OWN, 1),), 2),
        (((OWN, 1),), 5),
        (((OWN, 3),), 2),
        (((OWN, 3),), 5),
    ]


def test_a_menu_knows_who_is_taken_where_and_how_important_it_is():
    models = [make_model("vllm", "documented", {"num_blocks": blocks}) for blocks in (1, 2)]
    menu = menu_of([(((OWN, 16),), 1), (((OWN, 17),), 1, -1)], models)
    assert menu.accepted == (0b11, 0b10)
    assert [one.priority for one in menu.items] == [0, -1]
    assert [part.priority for part in menu.everything.split("priority")] == [0, -1]
    assert menu.everything.priority is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_what_the_engines_ask_for(system):
    assert system in DECIDED
    assert LIMIT_KEY[system] in full_config(system, resolve_revision(system, None), {})
    assert LIMIT_NAME[system]
    for scope in (*SCOPES[system], *CHECKUP[system]):
        assert scope.system == system
        assert LIMIT_KEY[system] not in scope.full_config
        assert list(scope.limits) == sorted(set(scope.limits))


@pytest.mark.parametrize("system", SYSTEMS)
def test_configurations_begin_together_if_their_first_states_are_equal(system):
    scope = SCOPES[system][0]
    revision = resolve_revision(system, None)
    models = MODELS[system](Asked(revision, scope))
    space = SchedulerSpace(models, models.menu(scope.menu), 1, {}, revision)
    roots = space.roots()
    together = [members for _, members in roots]
    if system == "spyre":
        assert together == [(1 << len(scope.limits)) - 1]
    else:
        assert together == [1 << number for number in range(len(scope.limits))]
    assert all(node.book.system == system for node, _ in roots)
    first = models.configs[0][LIMIT_KEY[system]]
    assert roots[0][0].book.config[LIMIT_KEY[system]] == first
