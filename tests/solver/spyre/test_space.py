"""Spyre explored: the reductions change no verdict, the limits together are the limits one by one,
and the number of states is what it was."""

from dataclasses import replace
from unittest import mock

import pytest

from schedproof.model.spyre.model import REVISIONS
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.exploration.search import numbers
from schedproof.solver.spyre import space as spyre_space
from schedproof.solver.spyre.scopes import SCOPES, SHARED, Scope
from schedproof.solver.spyre.space import READ_THE_LIMIT, Key, SpyreModels
from schedproof.spec.catalogue import load, select

RULES = [rule for rule in load("spyre") if rule.checked]
FEW = tuple(lengths((2, 3, 5), (2, 3)))
LIMITS = (6, 8, 11, 14, 40)
SMALL = [
    Scope("lengths", "", 2, FEW, LIMITS),
    Scope("aborts", "", 2, FEW, (8, 40), "any"),
    Scope("uneven", "", 2, FEW, LIMITS, config=(("max_model_len", 7),)),
    Scope("sequential", "", 2, FEW, LIMITS, config=(("interleave", False),)),
    Scope("slots", "", 3, tuple(lengths((3, 5), (1, 3))), (12,), config=(("max_num_seqs", 2),)),
    Scope(
        "wide blocks", "", 2, tuple(lengths((3, 9), (2, 7))), (24, 60), config=(("block_size", 4),)
    ),
    Scope("pool", "", 2, FEW, (40,), "alone", (("num_blocks", 8),)),
    Scope("cache", "", 2, SHARED[:8:3], (40,), "alone", (("prefix_caching", True),)),
]


def explored(revision, scope, **options):
    run = Exploration(ExploreOptions(revision, scope, **options), RULES)
    for _ in run.search.run():
        pass
    return run.result()


def verdicts(one):
    """Which rule breaks, and which was exercised, at which limits."""
    broken = {(found.rule, limit) for found in one.counterexamples for limit in found.limits}
    exercised = {(rule, limit) for rule, limits in one.exercised.items() for limit in limits}
    return broken, exercised


def steps_seen(revision, scope, reduced):
    """What an exploration finds, and every step that it saw: kind, tkv, and of each scheduled
    request its padding and its tokens after the step."""
    seen = set()
    judged = SchedulerSpace._judged

    def note(space, history, step, wait, members):
        pads = step.left_pad_blocks or {}
        rows = sorted(
            (pads.get(name), history.live[name].computed + tokens)
            for name, tokens in step.scheduled.items()
        )
        for number in numbers(members):
            seen.add((scope.limits[number], step.kind, step.tkv, tuple(rows)))
        return judged(space, history, step, wait, members)

    with mock.patch.object(SchedulerSpace, "_judged", note):
        one = explored(revision, scope, reduced=reduced)
    assert one.complete
    return verdicts(one), seen


def as_it_stands(models, state, history):
    """The state with all its names, and all that the client has booked."""
    pool = state.pool._replace(cached=())
    cached = frozenset(state.pool.cached.items())
    accounts = tuple(tuple(vars_of(one)) for one in history.requests.values())
    return state._replace(pool=pool), cached, accounts, tuple(history.live)


def vars_of(account):
    for name in ("id", "prompt", "max_tokens", "computed", "emitted", "prefill_steps", "ended"):
        yield getattr(account, name)


def agree(revision, scope):
    """The reduced graph leads to the same verdicts and witnesses, by the same steps, as the full
    one, in which nothing is chosen late and no two states are taken for the same."""
    reduced = steps_seen(revision, scope, True)
    with mock.patch.object(SpyreModels, "key", as_it_stands):
        return reduced == steps_seen(revision, scope, False)


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("scope", SMALL, ids=lambda scope: scope.name)
def test_the_reduced_and_the_full_graph_agree(revision, scope):
    if revision == "2.1.2" and scope.name == "pool":
        scope = replace(scope, config=(("num_blocks", 28),))
    assert agree(revision, scope)


def test_the_reduced_graph_is_smaller():
    reduced, full = (explored("documented", SMALL[0], reduced=flag) for flag in (True, False))
    assert reduced.transitions < 0.7 * full.transitions


def arrivals_when_nothing_runs(original):
    return lambda space, node, members: original(space, node, members) * (not node.history.live)


def all_limits_as_the_smallest(original):
    def decisions(space, state, members, inside):
        for together, emitted in original(space, state, members & -members, inside):
            yield members if together else 0, emitted

    return decisions


def first_choice_only(original):
    return lambda space, node, members, choice: original(space, node, members, choice)[:1]


WRONG = [
    (SchedulerSpace, "_arrivals", arrivals_when_nothing_runs),
    (SchedulerSpace, "_decisions", all_limits_as_the_smallest),
    (SchedulerSpace, "_choices", first_choice_only),
    (
        Key,
        "_decoding",
        lambda original: lambda key, one, history: (0, *original(key, one, history)[2:]),
    ),
    (spyre_space, "left", lambda original: lambda one: ()),
    (spyre_space, "_unstarted", lambda original: lambda one, history: ()),
]


@pytest.mark.parametrize(
    ("place", "name", "wrong"), WRONG, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_wrong_reduction_is_noticed(place, name, wrong):
    if name in ("_arrivals", "_choices"):
        original = getattr(place, name)

        def as_list(*args):
            return list(original(*args))

        planted = wrong(as_list)
    else:
        planted = wrong(getattr(place, name))
    scope = replace(SMALL[0], aborts="alone")
    full = steps_seen("documented", scope, False)
    with mock.patch.object(place, name, planted):
        assert steps_seen("documented", scope, True) != full


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_limits_explored_together_are_those_explored_one_by_one(revision):
    scope = replace(SMALL[0], aborts="alone")
    together = explored(revision, scope)
    broken, exercised = verdicts(together)
    for limit in LIMITS:
        alone = explored(revision, replace(scope, limits=(limit,)))
        assert alone.states == together.states_by_limit[limit]
        assert verdicts(alone)[0] == {entry for entry in broken if entry[1] == limit}
        assert verdicts(alone)[1] == {entry for entry in exercised if entry[1] == limit}


@pytest.mark.parametrize("order", ["depth", "deepening"])
def test_every_order_reaches_the_same_states(order):
    scope = replace(SMALL[0], limits=(11,))
    first, other = explored("2.1.2", scope), explored("2.1.2", scope, order=order)
    assert other.complete
    assert other.states == first.states
    assert verdicts(other) == verdicts(first)


@pytest.mark.parametrize("revision", ["documented", "2.1.2", "2.5.2"])
@pytest.mark.parametrize("scope", SMALL, ids=lambda scope: scope.name)
def test_every_counterexample_breaks_its_rule_on_the_model(revision, scope):
    if revision == "2.1.2" and scope.name == "pool":
        pytest.skip("2.1.2 has no rule for pools that run out")
    for found in explored(revision, scope).counterexamples:
        for limit in found.limits:
            config = {**found.scenario.config, "max_batch_tkv": limit}
            scenario = type(found.scenario)(
                system="spyre",
                revision=revision,
                config=config,
                requests=found.scenario.requests,
            )
            broken = replay(ModelTarget(), scenario, select(RULES, [found.rule])).broken
            assert [one.rule for one in broken] == [found.rule]


def test_only_the_rules_that_are_said_to_read_the_limit_do():
    class Unlimited(dict):
        def __getitem__(self, key):
            assert key != "max_batch_tkv", "the limit was read"
            return super().__getitem__(key)

    others = [rule for rule in RULES if rule.id not in READ_THE_LIMIT]
    for scope in SMALL[:6]:
        run = Exploration(ExploreOptions("2.5.2", scope), others)
        run._models.configs = [Unlimited(config) for config in run._models.configs]
        for _ in run.search.run():
            pass
        assert run.search.complete


# States and transitions of one configuration of every revision: a request that changes the model on
# purpose changes these numbers with it.
PINNED = {
    ("sound", "lengths"): (111, 219, 11),
    ("sound", "aborts"): (130, 567, 11),
    ("sound", "slots"): (112, 203, 14),
    ("sound", "cache"): (439, 653, 12),
    ("sound", "pool"): (197, 759, 11),
    ("documented", "lengths"): (111, 218, 11),
    ("documented", "aborts"): (130, 570, 11),
    ("documented", "slots"): (109, 193, 14),
    ("documented", "cache"): (439, 653, 12),
    ("documented", "pool"): (197, 759, 11),
    ("2.1.2", "lengths"): (244, 459, 13),
    ("2.1.2", "aborts"): (319, 1082, 13),
    ("2.1.2", "slots"): (223, 402, 16),
    ("2.1.2", "cache"): (484, 749, 11),
    ("2.5.2", "lengths"): (156, 304, 11),
    ("2.5.2", "aborts"): (184, 649, 11),
    ("2.5.2", "slots"): (208, 378, 14),
    ("2.5.2", "cache"): (492, 751, 12),
    ("2.5.2", "pool"): (530, 1585, 12),
}


@pytest.mark.parametrize(("revision", "name"), PINNED)
def test_the_number_of_states_is_what_it_was(revision, name):
    scope = next(one for one in SMALL if one.name == name)
    one = explored(revision, scope)
    assert (one.states, one.transitions, one.depth) == PINNED[revision, name]


def test_every_scope_has_a_name_of_its_own():
    assert len({scope.name for scope in SCOPES}) == len(SCOPES)
