"""LLMServingSim explored: the reductions change no verdict, pools together are the pools one by
one, the number of states is what it was, and a fault in the models is found."""

from dataclasses import replace
from unittest import mock

import pytest

from schedproof.model.llmservingsim import documented, head, kv_cache, scheduler
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.exploration.search import numbers
from schedproof.solver.llmservingsim.scopes import CHECKUP, SCOPES, SHARED, Scope
from schedproof.solver.llmservingsim.space import LlmServingSimModels
from schedproof.spec.catalogue import load, select

RULES = [rule for rule in load("llmservingsim") if rule.checked]
FEW = tuple(lengths((1, 3, 4), (1, 4)))
POOLS = (3, 4)
CACHES = ("enable_prefix_caching", True)
REVISIONS = ("documented", "head")
SMALL = [
    Scope("lengths", "", 2, FEW, (2, 3, 4)),
    Scope("aborts", "", 2, FEW, (3,), "any"),
    Scope("threshold", "", 2, FEW, POOLS, config=(("long_prefill_token_threshold", 2),)),
    Scope("few tokens", "", 2, FEW, (4,), config=(("max_num_batched_tokens", 1),)),
    Scope(
        "whole prompts",
        "",
        2,
        FEW,
        POOLS,
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope("cache", "", 2, SHARED[::3], (3, 4), "alone", (CACHES,)),
    Scope("slots", "", 3, FEW[1::2], (3,), config=(("max_num_seqs", 2),)),
    Scope("no cap", "", 3, FEW[1::4], (6,), config=(("max_num_seqs", 0),)),
    Scope(
        "prefills first",
        "",
        3,
        FEW[1::4],
        (6,),
        config=(("prioritize_prefill", True), ("max_num_seqs", 1)),
        revisions=("documented",),
    ),
]
CASES = [
    pytest.param(revision, scope, id=f"{revision} {scope.name}")
    for revision in REVISIONS
    for scope in SMALL
    if scope.belongs_to(revision)
]


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
    """What an exploration finds, and every step that it saw."""
    seen = set()
    judged = SchedulerSpace._judged

    def note(space, history, step, wait, members):
        rows = tuple(
            (tokens, history.live[name].computed, history.live[name].num_tokens)
            for name, tokens in step.scheduled.items()
        )
        hits = tuple((step.prefix_hit or {}).get(name) for name in step.scheduled)
        # How many wait behind one that no request looked at makes no difference.
        queues = step.waiting == (), len(step.running), len(step.preempted), step.free_blocks
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
    state = state._replace(pool=state.pool._replace(cached=()), batches=0)
    return state, cached, accounts, tuple(history.live), repr(history.last)


def vars_of(account):
    for name in ("id", "prompt", "max_tokens", "arrival", "computed", "emitted", "prefix_hit"):
        yield getattr(account, name)
    for name in ("prefill_steps", "regenerated", "lost", "preemptions", "ended"):
        yield getattr(account, name)


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "scope"), CASES)
def test_the_reduced_and_the_full_graph_agree(revision, scope):
    reduced = steps_seen(revision, scope, True)
    with mock.patch.object(LlmServingSimModels, "key", as_it_stands):
        full = steps_seen(revision, scope, False)
    assert reduced[0] == full[0]
    assert reduced[1] == full[1]


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "scope"), CASES)
def test_the_models_keep_every_rule_and_never_go_in_circles(revision, scope):
    one = explored(revision, scope)
    assert one.complete
    assert [found.rule for found in one.counterexamples] == []
    assert one.livelocks == 0


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("scope", [SMALL[0], SMALL[5]], ids=lambda scope: scope.name)
def test_pools_explored_in_one_go_are_those_explored_one_by_one(revision, scope):
    together = explored(revision, scope)
    broken, exercised = verdicts(together)
    for pool in scope.limits:
        alone = explored(revision, replace(scope, limits=(pool,)))
        assert alone.states == together.states_by_limit[pool]
        assert verdicts(alone)[0] == {entry for entry in broken if entry[1] == pool}
        assert verdicts(alone)[1] == {entry for entry in exercised if entry[1] == pool}


# States, transitions and depth of a few configurations: a request that changes a model on purpose
# changes these numbers with it.
PINNED = {
    ("documented", "lengths"): (423, 777, 11),
    ("documented", "aborts"): (147, 606, 10),
    ("documented", "threshold"): (451, 812, 12),
    ("documented", "few tokens"): (98, 166, 14),
    ("documented", "whole prompts"): (353, 668, 11),
    ("documented", "cache"): (1511, 2569, 14),
    ("documented", "slots"): (110, 232, 12),
    ("documented", "no cap"): (232, 657, 11),
    ("documented", "prefills first"): (205, 417, 12),
    ("head", "lengths"): (277, 605, 10),
    ("head", "aborts"): (96, 545, 10),
    ("head", "threshold"): (306, 645, 11),
    ("head", "few tokens"): (62, 113, 12),
    ("head", "whole prompts"): (226, 524, 9),
    ("head", "cache"): (1641, 2835, 14),
    ("head", "slots"): (203, 495, 13),
    ("head", "no cap"): (310, 915, 13),
}


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "name"), PINNED)
def test_the_number_of_states_is_what_it_was(revision, name):
    scope = next(one for one in SMALL if one.name == name)
    one = explored(revision, scope)
    assert (one.states, one.transitions, one.depth) == PINNED[revision, name]


def eldest_first(original):
    return lambda plan: plan.running[0]


def one_block_more(original):
    return lambda pool, blocks: original(pool, blocks - 1)


def nothing_for_anybody(original):
    return lambda *args: 0


def last_come_first_served(original):
    return lambda config, state: original(config, state)[::-1]


def doubles(original):
    def arrive(state, newcomer):
        after = original(state, newcomer)
        return after._replace(waiting=(*after.waiting, *after.waiting[-1:]))

    return arrive


# A fault of a model, the revision and the scope that show it, and a rule that it breaks.
FAULTS = {
    "the eldest gives way": (head, "victim", eldest_first, "head", "lengths", "LSS-R30"),
    "a block that is not there": (
        *(kv_cache, "fits", one_block_more),
        *("documented", "lengths", "LSS-P01"),
    ),
    "no request gets anything": (
        *(documented, "cap", nothing_for_anybody),
        *("documented", "threshold", "ALL-R10"),
    ),
    "last come, first served": (
        *(documented, "queue", last_come_first_served),
        *("documented", "no cap", "LSS-R08"),
    ),
    "twice in the line": (scheduler, "arrive", doubles, "head", "lengths", "ALL-R03"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_counterexample_replays(name):
    module, attribute, fault, revision, scope, rule = FAULTS[name]
    [scope] = [one for one in SMALL if one.name == scope]
    with mock.patch.object(module, attribute, fault(getattr(module, attribute))):
        one = explored(revision, scope)
        [found] = [each for each in one.counterexamples if each.rule == rule][:1]
        for pool in found.limits:
            config = {**found.scenario.config, "num_blocks": pool}
            scenario = type(found.scenario)(
                system="llmservingsim",
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
                for pool in scope.limits if scope.belongs_to(revision) else ():
                    config = {**scope.full_config, "num_blocks": pool}
                    make_model("llmservingsim", revision, config)
