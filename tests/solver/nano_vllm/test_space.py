"""nano-vLLM explored: the reductions change no verdict, pools together are the pools one by one,
the number of states is what it was, and a fault in the model is found."""

from dataclasses import replace
from unittest import mock

import pytest

from schedproof.model.nano_vllm import block_manager, documented, scheduler
from schedproof.model.nano_vllm.state import Sequence
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.canonical_names import CanonicalNames
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.exploration.search import numbers
from schedproof.solver.nano_vllm import space as nano_space
from schedproof.solver.nano_vllm.scopes import CHECKUP, IN_CHUNKS, SCOPES, SHARED, Scope
from schedproof.solver.nano_vllm.space import NanoModels
from schedproof.spec.catalogue import load, select

RULES = [rule for rule in load("nano_vllm") if rule.checked]
REVISIONS = ("documented", "0.2.0")
FEW = tuple(lengths((1, 3, 4), (1, 4)))
WIDE = ("block_size", 4)
BUDGET = ("max_num_batched_tokens", 3)
SMALL = [
    Scope("lengths", "", 2, FEW, (3, 4)),
    Scope("aborts", "", 2, FEW[1::2], (3,), "any", revisions=("0.2.0",)),
    Scope("slots", "", 3, tuple(lengths((1, 4), (1, 2))), (3,), config=(("max_num_seqs", 2),)),
    # Early ends are left out of steps in which nothing else happens: the menu has them all.
    Scope(
        "wide blocks",
        "",
        2,
        tuple(lengths((1, 4), (1, 3, 4, 5))),
        (2,),
        config=(WIDE,),
        revisions=("documented",),
    ),
    Scope("cache", "", 2, SHARED[::3], (4, 5)),
    Scope("chunks", "", 2, FEW, (3, 4), config=(BUDGET,), revisions=IN_CHUNKS),
    Scope("cache in chunks", "", 2, SHARED[::3], (4,), "alone", (BUDGET,), IN_CHUNKS),
]
# Where no prompt is cut and every slot is free the revisions decide alike: one is enough.
EVERY = [
    (revision, scope) for revision in REVISIONS for scope in SMALL if scope.belongs_to(revision)
]
each = pytest.mark.parametrize(
    ("revision", "scope"), EVERY, ids=[f"{revision}-{scope.name}" for revision, scope in EVERY]
)


def named(name):
    return next(scope for scope in SMALL if scope.name == name)


def explored(revision, scope, rules=RULES, **options):
    run = Exploration(ExploreOptions(revision, scope, **options), rules)
    for _ in run.search.run():
        pass
    return run.result()


def verdicts(one):
    """Which rule breaks, and which was exercised, in which pools."""
    broken = {(found.rule, pool) for found in one.counterexamples for pool in found.limits}
    exercised = {(rule, pool) for rule, pools in one.exercised.items() for pool in pools}
    return broken, exercised


def steps_seen(revision, scope, reduced):
    """What an exploration finds, and every step that it saw: in scheduling order the tokens of each
    request, what it had computed and what it knows, and what is left of the pool."""
    seen = set()
    judged = SchedulerSpace._judged

    def note(space, history, step, wait, members):
        rows = tuple(
            (tokens, history.live[name].computed, history.live[name].num_tokens)
            for name, tokens in step.scheduled.items()
        )
        hits = tuple((step.prefix_hit or {}).get(name) for name in step.scheduled)
        queues = len(step.waiting), len(step.running), len(step.preempted), step.free_blocks
        for number in numbers(members):
            seen.add((scope.limits[number], step.kind, rows, hits, queues))
        return judged(space, history, step, wait, members)

    with mock.patch.object(SchedulerSpace, "_judged", note):
        one = explored(revision, scope, reduced=reduced)
    assert one.complete
    return verdicts(one), seen


def as_it_stands(models, state, history):
    """The state with all its names, all that the client has booked, and the step before."""
    cached = frozenset(state.pool.cached.items())
    accounts = tuple(tuple(vars_of(one)) for one in history.requests.values())
    state = state._replace(pool=state.pool._replace(cached=()))
    return state, cached, accounts, tuple(history.live), repr(history.last)


def vars_of(account):
    for name in ("id", "prompt", "max_tokens", "arrival", "computed", "emitted", "prefix_hit"):
        yield getattr(account, name)
    for name in ("prefill_steps", "regenerated", "lost", "preemptions", "ended"):
        yield getattr(account, name)


@pytest.mark.slow
@each
def test_the_reduced_and_the_full_graph_agree(revision, scope):
    reduced = steps_seen(revision, scope, True)
    with mock.patch.object(NanoModels, "key", as_it_stands):
        full = steps_seen(revision, scope, False)
    assert reduced[0] == full[0]
    assert reduced[1] == full[1]


@pytest.mark.slow
def test_the_reduced_graph_is_smaller():
    for revision in REVISIONS:
        sizes = [explored(revision, named("lengths"), reduced=flag) for flag in (True, False)]
        assert sizes[0].transitions < 0.85 * sizes[1].transitions


def arrivals_when_nothing_runs(original):
    return lambda space, node, members: (
        list(original(space, node, members)) * (not node.history.live)
    )


def first_choice_only(original):
    return lambda space, node, members, choice: list(original(space, node, members, choice))[:1]


def without(*places):
    """Of each request's part of a key, these numbers are left out."""

    def wrong(original):
        return lambda *args: tuple(
            part for place, part in enumerate(original(*args)) if place not in places
        )

    return wrong


def pool_without_contents(original):
    return lambda names, pool: ()


def always_quiet(original):
    return lambda models, state: not state.waiting


THREE = Scope("three", "", 3, SHARED[1::3], (4,))
# Places in `space._member`: what may still be asked, computed, generated, left. Of these three one
# says what the others do, and so do blocks and their contents while they are small.
WRONG = {
    "arrivals": (
        *("documented", named("lengths"), SchedulerSpace, "_arrivals"),
        arrivals_when_nothing_runs,
    ),
    "choices": (
        *("documented", named("lengths"), SchedulerSpace, "_choices"),
        first_choice_only,
    ),
    "candidates": ("documented", named("lengths"), nano_space, "_member", without(1)),
    "computed": ("documented", named("wide blocks"), nano_space, "_member", without(3, 4, 7)),
    "contents of blocks": ("documented", THREE, CanonicalNames, "pool", pool_without_contents),
    "quiet": ("documented", named("wide blocks"), NanoModels, "quiet", always_quiet),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_reduction_is_noticed(name):
    revision, scope, place, attribute, wrong = WRONG[name]
    right = steps_seen(revision, scope, True)
    with mock.patch.object(place, attribute, wrong(getattr(place, attribute))):
        assert steps_seen(revision, scope, True) != right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("revision", "name"), [("documented", "lengths"), ("documented", "cache"), ("0.2.0", "chunks")]
)
def test_pools_explored_in_one_go_are_those_explored_one_by_one(revision, name):
    scope = named(name)
    together = explored(revision, scope)
    broken, exercised = verdicts(together)
    for pool in scope.limits:
        alone = explored(revision, replace(scope, limits=(pool,)))
        assert alone.states == together.states_by_limit[pool]
        assert verdicts(alone)[0] == {entry for entry in broken if entry[1] == pool}
        assert verdicts(alone)[1] == {entry for entry in exercised if entry[1] == pool}


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("order", ["depth", "deepening"])
def test_every_order_comes_to_the_same_verdicts(revision, order):
    """Not to as many states: requests that have ended are numbered as they came, so that of two
    ends that mirror each other the first one met is counted, or both."""
    scope = replace(named("lengths"), limits=(3,))
    first, other = explored(revision, scope), explored(revision, scope, order=order)
    assert other.complete
    assert verdicts(other) == verdicts(first)


@each
def test_the_model_keeps_every_rule_but_those_of_which_the_release_is_known_to_differ(
    revision, scope
):
    one = explored(revision, scope)
    assert one.complete
    # Release 0.2.0 bounds the sequences of a step by max_num_seqs, not those that run.
    slots = (revision, scope.name) == ("0.2.0", "slots")
    expected = {"NAN-R40", "NAN-R04"} if slots else set()
    assert {found.rule for found in one.counterexamples} == expected
    assert one.livelocks == 0


# States, transitions and depth of a few configurations: a request that changes the model on purpose
# changes these numbers with it.
PINNED = {
    ("documented", "lengths"): (976, 1281, 12),
    ("documented", "slots"): (503, 794, 12),
    ("documented", "wide blocks"): (427, 559, 14),
    ("documented", "cache"): (536, 736, 10),
    ("0.2.0", "lengths"): (976, 1281, 12),
    ("0.2.0", "aborts"): (788, 1468, 12),
    ("0.2.0", "slots"): (506, 799, 12),
    ("0.2.0", "cache"): (566, 756, 10),
    ("0.2.0", "chunks"): (1047, 1348, 15),
    ("0.2.0", "cache in chunks"): (1279, 2310, 12),
}


@each
def test_the_number_of_states_is_what_it_was(revision, scope):
    one = explored(revision, scope)
    assert (one.states, one.transitions, one.depth) == PINNED[revision, scope.name]


def forgets_what_it_said(original):
    return lambda one: original(one)._replace(generated=0)


def one_block_more(original):
    return lambda pool, blocks: original(pool, blocks - 1)


def keeps_its_last_block(original):
    def deallocate(pool, one, *rest):
        return original(pool, one._replace(blocks=one.blocks[:1]), *rest)

    return deallocate


def a_token_of_every_chunk(original):
    return lambda one: one.computed > 0


# A fault of the model, the scope that shows it, and a rule that it breaks.
FAULTS = {
    "forgets what it said": (
        *("documented", Sequence, "rewound", forgets_what_it_said),
        *("lengths", "ALL-R04"),
    ),
    "a block that is not there": (
        *("documented", documented, "fits", one_block_more),
        *("lengths", "NAN-R09"),
    ),
    "keeps a block": (
        *("documented", block_manager, "deallocate", keeps_its_last_block),
        *("aborts", "ALL-R09"),
    ),
    "a token of every chunk": (
        *("0.2.0", scheduler, "caught_up", a_token_of_every_chunk),
        *("chunks", "NAN-R13"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_counterexample_replays(name):
    revision, place, attribute, fault, scope, rule = FAULTS[name]
    with mock.patch.object(place, attribute, fault(getattr(place, attribute))):
        one = explored(revision, named(scope))
        [found] = [each for each in one.counterexamples if each.rule == rule][:1]
        for pool in found.limits:
            config = {**found.scenario.config, "num_blocks": pool}
            scenario = type(found.scenario)(
                system="nano_vllm",
                revision=revision,
                config=config,
                requests=found.scenario.requests,
            )
            broken = replay(ModelTarget(), scenario, select(RULES, [rule])).broken
            assert [each.rule for each in broken] == [rule]


def test_every_scope_has_a_name_of_its_own_and_a_configuration_that_exists():
    for scopes in (SCOPES, CHECKUP):
        assert len({scope.name for scope in scopes}) == len(scopes)
        for scope in scopes:
            for revision in REVISIONS:
                for pool in scope.limits:
                    make_model("nano_vllm", revision, {**scope.full_config, "num_blocks": pool})
