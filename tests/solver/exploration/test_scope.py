"""Menus and scopes: who is taken at which door, and what a scope adds to the smallest
configuration."""

import pytest

from schedproof.model.systems import full_config, make_model, resolve_revision
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths, menu_of
from schedproof.solver.exploration.undecided import OWN
from schedproof.solver.systems import explored_systems, proofs_of, space_of

SYSTEMS = explored_systems()


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
    assert isinstance(proofs_of(system), dict)
    assert space_of(system).limit_key in full_config(system, resolve_revision(system, None), {})
    assert space_of(system).limit_name
    for scope in (*space_of(system).scopes, *space_of(system).checkup):
        assert scope.system == system
        assert space_of(system).limit_key not in scope.full_config
        assert list(scope.limits) == sorted(set(scope.limits))


@pytest.mark.parametrize("system", SYSTEMS)
def test_configurations_begin_together_if_their_first_states_are_equal(system):
    scope = space_of(system).scopes[0]
    revision = resolve_revision(system, None)
    models = space_of(system).models(revision, scope.full_config, scope.limits, None)
    space = SchedulerSpace(models, models.menu(scope.menu), 1, {}, revision)
    roots = space.roots()
    together = [members for _, members in roots]
    if system == "spyre":
        assert together == [(1 << len(scope.limits)) - 1]
    else:
        assert together == [1 << number for number in range(len(scope.limits))]
    assert all(node.history.system == system for node, _ in roots)
    first = models.configs[0][space_of(system).limit_key]
    assert roots[0][0].history.config[space_of(system).limit_key] == first
