"""vLLM explored: the reductions change no verdict, pools together are the pools one by one, the
number of states is what it was, and a fault in the model is found."""

from dataclasses import replace
from unittest import mock

import pytest

from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import connector, in_flight, kv_cache, queue, scheduler
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.exploration.search import numbers
from schedproof.solver.vllm import key
from schedproof.solver.vllm.key import Key
from schedproof.solver.vllm.scopes import (
    AHEAD,
    CHECKUP,
    EITHER,
    LOADS,
    SCOPES,
    SHARED,
    STAGES,
    Scope,
    loaded,
    ranked,
)
from schedproof.solver.vllm.space import VllmModels
from schedproof.spec.catalogue import load, select

RULES = [rule for rule in load("vllm") if rule.checked]
FEW = tuple(lengths((1, 3, 4), (1, 4)))
POOLS = (3, 4)
CACHES = ("enable_prefix_caching", True)
PRIORITY = ("policy", "priority")
SMALL = [
    Scope("lengths", "", 2, FEW, (2, 3, 4)),
    Scope("aborts", "", 2, FEW, (3,), "any"),
    Scope("threshold", "", 2, FEW, POOLS, config=(("long_prefill_token_threshold", 2),)),
    Scope("first chunk", "", 2, FEW, POOLS, config=(("reserve_full_isl", False),)),
    Scope(
        "whole prompts",
        "",
        2,
        FEW,
        POOLS,
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope("watermark", "", 2, FEW, (4,), config=(("watermark", 0.3),)),
    Scope("priority", "", 2, ranked(FEW[1::2], (0, 1)), (3,), "alone", (PRIORITY,)),
    Scope("cache", "", 2, SHARED[::3], (3, 4), "alone", (CACHES,)),
    Scope("important cache", "", 2, ranked(SHARED[1::4], (0, 1)), (4,), config=(CACHES, PRIORITY)),
    Scope("slots", "", 3, FEW[1::2], (3,), config=(("max_num_seqs", 2),)),
    Scope("ahead", "", 2, FEW, (3,), "any", (AHEAD,)),
    Scope("stages", "", 3, FEW[1::2], (3,), config=(STAGES,)),
    Scope("loads", "", 2, loaded(FEW[1::4], EITHER), (3,), "alone", (LOADS,)),
    Scope("three loads", "", 3, loaded(FEW[4:], EITHER[::2]), (4,), config=(LOADS,)),
    Scope("loads ahead", "", 2, loaded(FEW[1::3], EITHER), (3,), "alone", (LOADS, AHEAD)),
]


def explored(scope, rules=RULES, **options):
    run = Exploration(ExploreOptions("documented", scope, **options), rules)
    for _ in run.search.run():
        pass
    return run.result()


def verdicts(one):
    """Which rule breaks, and which was exercised, in which pools."""
    broken = {(found.rule, pool) for found in one.counterexamples for pool in found.limits}
    exercised = {(rule, pool) for rule, pools in one.exercised.items() for pool in pools}
    return broken, exercised


def steps_seen(scope, reduced):
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
        one = explored(scope, reduced=reduced)
    assert one.complete
    return verdicts(one), seen


def as_it_stands(models, state, history):
    """The state with all its names, all that the client has booked, and the step before."""
    cached = frozenset(state.pool.cached.items())
    accounts = tuple(tuple(vars_of(one)) for one in history.requests.values())
    flights = repr(state.in_flight)
    state = state._replace(pool=state.pool._replace(cached=()), in_flight=())
    return (
        state,
        flights,
        cached,
        accounts,
        tuple(history.live),
        repr((history.last, history.system_state.flights)),
    )


def vars_of(account):
    for name in ("id", "prompt", "max_tokens", "priority", "arrival", "computed", "emitted"):
        yield getattr(account, name)
    for name in ("prefix_hit", "prefill_steps", "regenerated", "lost", "preemptions", "ended"):
        yield getattr(account, name)
    for name in ("promised", "load_left", "parked_since", "over"):
        yield getattr(account, name)


@pytest.mark.slow
@pytest.mark.parametrize("scope", SMALL, ids=lambda scope: scope.name)
def test_the_reduced_and_the_full_graph_agree(scope):
    reduced = steps_seen(scope, True)
    with mock.patch.object(VllmModels, "key", as_it_stands):
        full = steps_seen(scope, False)
    assert reduced[0] == full[0]
    assert reduced[1] == full[1]


def test_the_reduced_graph_is_smaller():
    reduced, full = (explored(SMALL[0], reduced=flag) for flag in (True, False))
    assert reduced.transitions < 0.7 * full.transitions


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


# Scopes in which it matters what a wrong key leaves out.
LEFT = Scope("left", "", 2, tuple(lengths((1, 2, 3), (1, 2, 5))), (3,))
COMPUTED = Scope(
    "computed",
    "",
    2,
    tuple(lengths((1, 2, 4, 5), (1, 4))),
    (3,),
    config=(("block_size", 4), ("max_num_batched_tokens", 3)),
)
THREE = Scope("three", "", 3, SHARED[::3], (4,), config=(CACHES,))
# Places in `key._as_numbers`: known tokens, computed.
WRONG = {
    "arrivals": (SMALL[0], SchedulerSpace, "_arrivals", arrivals_when_nothing_runs),
    "choices": (SMALL[0], SchedulerSpace, "_choices", first_choice_only),
    "known": (SMALL[0], key, "_as_numbers", without(0)),
    "computed": (COMPUTED, key, "_as_numbers", without(1)),
    "left": (LEFT, key, "left", lambda original: lambda one: ()),
    "cached": (THREE, Key, "_with_contents", lambda original: Key._by_length),
    "flights": (SMALL[11], key, "on_their_way", lambda original: lambda *args: ()),
    "loads": (SMALL[12], key, "_in_flight", lambda original: lambda *args: ()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_reduction_is_noticed(name):
    scope, place, attribute, wrong = WRONG[name]
    right = steps_seen(scope, True)
    with mock.patch.object(place, attribute, wrong(getattr(place, attribute))):
        assert steps_seen(scope, True) != right


@pytest.mark.parametrize("scope", [SMALL[0], SMALL[7]], ids=lambda scope: scope.name)
def test_pools_explored_in_one_go_are_those_explored_one_by_one(scope):
    together = explored(scope)
    broken, exercised = verdicts(together)
    for pool in scope.limits:
        alone = explored(replace(scope, limits=(pool,)))
        assert alone.states == together.states_by_limit[pool]
        assert verdicts(alone)[0] == {entry for entry in broken if entry[1] == pool}
        assert verdicts(alone)[1] == {entry for entry in exercised if entry[1] == pool}


@pytest.mark.parametrize("order", ["depth", "deepening"])
def test_every_order_reaches_the_same_states(order):
    scope = replace(SMALL[0], limits=(3,))
    first, other = explored(scope), explored(scope, order=order)
    assert other.complete
    assert other.states == first.states
    assert verdicts(other) == verdicts(first)


@pytest.mark.slow
@pytest.mark.parametrize("scope", SMALL, ids=lambda scope: scope.name)
def test_the_model_keeps_every_rule_and_never_goes_in_circles(scope):
    one = explored(scope)
    assert one.complete
    assert [found.rule for found in one.counterexamples] == []
    assert one.livelocks == 0


# States, transitions and depth of a few configurations: a request that changes the model on purpose
# changes these numbers with it.
PINNED = {
    "lengths": (277, 605, 10),
    "aborts": (96, 545, 10),
    "threshold": (306, 645, 11),
    "first chunk": (235, 520, 10),
    "whole prompts": (226, 524, 9),
    "watermark": (112, 252, 10),
    "priority": (260, 1267, 11),
    "cache": (582, 938, 12),
    "important cache": (755, 1162, 14),
    "slots": (203, 495, 13),
    "ahead": (201, 951, 12),
    "stages": (1140, 2013, 25),
    "loads": (247, 1049, 8),
    "three loads": (313, 675, 14),
    "loads ahead": (827, 3307, 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PINNED)
def test_the_number_of_states_is_what_it_was(name):
    scope = next(one for one in SMALL if one.name == name)
    one = explored(scope)
    assert (one.states, one.transitions, one.depth) == PINNED[name]


def eldest_first(original):
    return lambda config, running: running[0]


def most_important_first(original):
    return lambda config, running: min(running, key=queue.importance)


def one_block_more(original):
    return lambda pool, blocks: original(pool, blocks - 1)


def forgets_what_it_said(original):
    def preempt(config, plan, victim):
        return original(config, plan, victim._replace(generated=0) if victim.generated else victim)

    return preempt


def never(original):
    return lambda *args: None


def zero(original):
    return lambda *args: 0


def no(original):
    return lambda *args: False


# A fault of the model, the scope that shows it, and a rule that it breaks.
FAULTS = {
    "the eldest is preempted": (queue, "victim", eldest_first, "lengths", "V1CP-R13"),
    "the most important": (queue, "victim", most_important_first, "priority", "V1CP-R14"),
    "a block that is not there": (kv_cache, "fits", one_block_more, "first chunk", "V1-R14"),
    "forgets what it said": (scheduler, "preempt", forgets_what_it_said, "lengths", "ALL-R04"),
    # A request that needs a second chunk is preempted, and begins again.
    "no request grows": (kv_cache, "grow", never, "threshold", "ALL-R06"),
    # What vllm 0.18.0 to 0.22.1 do: two parked requests wait for each other's blocks, for ever.
    "loads take all": (connector, "promised_blocks", zero, "loads ahead", "ALL-R10"),
    "too early": (in_flight, "computed_still", no, "stages", "V1-R10"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_counterexample_replays(name):
    module, attribute, fault, scope, rule = FAULTS[name]
    [scope] = [one for one in SMALL if one.name == scope]
    with mock.patch.object(module, attribute, fault(getattr(module, attribute))):
        one = explored(scope)
        [found] = [each for each in one.counterexamples if each.rule == rule][:1]
        for pool in found.limits:
            config = {**found.scenario.config, "num_blocks": pool}
            scenario = type(found.scenario)(
                system="vllm",
                revision="documented",
                config=config,
                requests=found.scenario.requests,
            )
            broken = replay(ModelTarget(), scenario, select(RULES, [rule])).broken
            assert [each.rule for each in broken] == [rule]


def test_every_scope_has_a_name_of_its_own_and_a_configuration_that_exists():
    for scopes in (SCOPES, CHECKUP):
        assert len({scope.name for scope in scopes}) == len(scopes)
        for scope in scopes:
            for pool in scope.limits:
                make_model("vllm", "documented", {**scope.full_config, "num_blocks": pool})
