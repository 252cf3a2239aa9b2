"""The machine finds, records and replays."""

from collections import Counter

import pytest
from hypothesis.database import InMemoryExampleDatabase

from schedproof.model.faults import TargetBroken
from schedproof.model.scenario import Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.machine import Search, search
from schedproof.properties.replay import replay
from schedproof.properties.shrink import shrink
from schedproof.properties.systems import GENERATORS
from schedproof.spec.catalogue import load

from .foreseen import EndsTooSoon, Foreseen, ShowsNoTokens

RULES = load("spyre")


class AbortLeavesAGhost(ModelTarget):
    """An aborted request is forgotten, but stays in the queue that is shown."""

    def start(self, system, revision, config):
        self._ghosts = []
        return super().start(system, revision, config)

    def abort(self, id, inside=False):  # noqa: A002
        self._ghosts.append(id)
        return super().abort(id, inside)

    def step(self):
        reply = super().step()
        reply["step"]["waiting"] += self._ghosts
        return reply


def _hunt(target, revision="sound", scale="small", known=frozenset()):
    return Search(target, "spyre", revision, RULES, scale, known)


@pytest.mark.parametrize("scale", ["small", "tight"])
def test_the_documents_own_projection_is_found_to_break_the_limit(scale):
    hunt = _hunt(ModelTarget(), "documented", scale)
    found = any(search(hunt, 300, seed, 100) for seed in range(3))
    assert found
    scenario, broken = hunt.failure
    assert broken[0].rule == "SPY-R07"

    def still_breaks(candidate):
        again = replay(ModelTarget(), candidate, RULES).broken
        return bool(again) and again[0].rule == "SPY-R07"

    assert len(shrink(scenario, still_breaks, 250).requests) <= 5


def test_a_recorded_failure_replays_to_the_same_rule_in_the_same_step():
    hunt = _hunt(AbortLeavesAGhost())
    assert search(hunt, 300, 0, 50)
    scenario, broken = hunt.failure
    assert any(request.abort_at is not None for request in scenario.requests)
    again = replay(AbortLeavesAGhost(), scenario, RULES).broken
    assert again == broken


def test_a_request_keeps_its_priority_when_its_client_gives_up():
    class OnlySomeLeaveAGhost(AbortLeavesAGhost):
        def add(self, request):
            self._named = getattr(self, "_named", {}) | {request["id"]: request["priority"]}
            return super().add(request)

        def abort(self, id, inside=False):  # noqa: A002
            if self._named[id]:
                return super().abort(id, inside)
            return ModelTarget.abort(self, id, inside)

    rules = load("vllm")
    hunt = Search(OnlySomeLeaveAGhost(), "vllm", "documented", rules, "small")
    assert search(hunt, 300, 0, 50)
    scenario, broken = hunt.failure
    assert any(one.priority for one in scenario.requests if one.abort_at is not None)
    assert replay(OnlySomeLeaveAGhost(), scenario, rules).broken == broken


def test_the_same_seed_gives_the_same_runs():
    first, second = _hunt(ModelTarget(), "documented"), _hunt(ModelTarget(), "documented")
    search(first, 60, 7, 30)
    search(second, 60, 7, 30)
    assert (first.runs, first.steps, first.failure) == (second.runs, second.steps, second.failure)
    assert first.at_stake == second.at_stake


def test_a_known_rule_ends_a_run_but_not_the_search():
    hunt = _hunt(AbortLeavesAGhost(), known=frozenset({"ALL-R03"}))
    assert not search(hunt, 60, 0, 0)
    assert hunt.failure is None
    assert hunt.runs >= 60


def test_a_target_that_answers_nonsense_ends_the_search():
    class Nonsense(ModelTarget):
        def step(self):
            return {"ok": True, "step": {"kind": "prefill"}}

    with pytest.raises(TargetBroken):
        search(_hunt(Nonsense()), 10, 0, 0)


def test_shrinking_stops_at_its_budget():
    hunt = _hunt(AbortLeavesAGhost())
    assert search(hunt, 300, 0, 5)
    assert hunt.runs <= hunt.runs_to_failure + 6


def test_most_of_those_who_come_late_meet_a_batch(monkeypatch):
    met = Counter()
    aimed = GENERATORS["spyre"].beside_the_batch

    def counted(config, ledger):
        met["batch"] += 1
        return aimed(config, ledger)

    monkeypatch.setattr(GENERATORS["spyre"], "beside_the_batch", counted)
    hunt = _hunt(ModelTarget())
    search(hunt, 100, 0, 0)
    # One run in three, with runs whose requests are all short, or given up, among them.
    assert met["batch"] >= hunt.runs / 3


@pytest.mark.parametrize("system", GENERATORS)
def test_what_was_foreseen_comes(system):
    target = Foreseen()
    revision = "sound" if system == "spyre" else "documented"
    hunt = Search(target, system, revision, load(system), "small")
    hunt.new = lambda broken, scenario: []
    search(hunt, 100, 0, 0)
    assert not target.amid
    assert hunt.foresees
    assert max(target.counts) > 3
    assert len(target.counts) < hunt.steps


def test_a_target_that_ends_too_soon_is_searched_again_step_by_step():
    target = EndsTooSoon()
    rules = [rule for rule in RULES if rule.id == "SPY-R07"]
    hunt = Search(target, "spyre", "sound", rules, "small")
    assert not search(hunt, 60, 0, 0)
    assert not target.amid
    assert not hunt.foresees
    assert hunt.runs >= 60
    assert len(target.counts) < hunt.steps / 10


@pytest.mark.parametrize("seed", range(6))
def test_what_ends_too_soon_now_and_then_is_searched_as_if_nothing_had_been_foreseen(seed):
    rules = [rule for rule in RULES if rule.id == "SPY-R07"]
    shelves = InMemoryExampleDatabase(), InMemoryExampleDatabase()
    found = []
    for foresees, shelf in zip((True, False), shelves, strict=True):
        target = EndsTooSoon(prompt=5)
        seen: list[Scenario] = []
        hunt = Search(target, "spyre", "sound", rules, "small", foresees=foresees)
        hunt.ended = seen.append
        assert not search(hunt, 120, seed, 0, shelf)
        assert not target.amid
        assert hunt.runs >= 120
        found.append((hunt.counts, hunt.at_stake, {str(one) for one in seen}))
    assert found[0] == found[1]
    assert shelves[0].data == shelves[1].data == {}


def test_a_target_that_does_not_show_its_tokens_is_asked_step_by_step():
    target = ShowsNoTokens()
    hunt = Search(target, "spyre", "sound", RULES, "small")
    assert not search(hunt, 60, 0, 0)
    assert hunt.steps > 100
    assert not target.counts


def test_while_it_is_shrunk_nothing_is_foreseen_beyond_the_step_that_broke():
    class Ghosts(Foreseen, AbortLeavesAGhost):
        """Steps that are foreseen, and a ghost."""

    target = Ghosts()
    hunt = _hunt(target)
    assert search(hunt, 300, 0, 50)
    assert not target.amid
    target.vain = 0
    scenario, broken = hunt.failure
    last = max(one.arrival for one in scenario.requests)
    assert hunt.last_step == broken[0].step >= last
    assert replay(target, scenario, RULES, last_step=hunt.last_step).broken == broken
    replay(target, scenario, RULES)
    assert target.vain == 0
