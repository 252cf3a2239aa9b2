"""The machine finds, records and replays."""

import contextlib
from collections import Counter

import pytest
from hypothesis import settings

from schedproof.model.faults import TargetBroken, TargetCrashed
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.generators import generators_of
from schedproof.properties.search.machine import machine_of
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.properties.shrinking.shrink import shrink
from schedproof.spec.catalogue import load

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


def _search(target, revision="sound", scale="small", known=frozenset(), **more):
    return Search(SearchOptions(target, "spyre", revision, RULES, scale, known, **more))


@pytest.mark.slow
def test_the_documents_own_projection_is_found_to_break_the_limit():
    search = _search(ModelTarget(), "documented", "tight")
    assert run_search(search, 300, 1, 0)
    scenario, broken = search.failure
    assert broken[0].rule == "SPY-R47"

    def still_breaks(candidate):
        again = replay(ModelTarget(), candidate, RULES).broken
        return bool(again) and again[0].rule == "SPY-R47"

    assert len(shrink(scenario, still_breaks, 100).requests) <= 5


def test_the_users_hypothesis_profile_changes_no_search(monkeypatch):
    used = []

    def run(machine, settings):
        used.append(settings)

    monkeypatch.setattr("schedproof.properties.search.run.run_state_machine_as_test", run)
    own = {"backend": "hypothesis-urandom", "derandomize": True, "print_blob": True}
    before = settings.get_current_profile_name()
    run_search(_search(ModelTarget()), 1, 0, 0)
    settings.register_profile("own", database=None, stateful_step_count=1, **own)
    settings.load_profile("own")
    try:
        run_search(_search(ModelTarget()), 1, 0, 0)
    finally:
        settings.load_profile(before)
    assert repr(used[0]) == repr(used[1])


@pytest.mark.slow
def test_a_recorded_failure_replays_to_the_same_rule_in_the_same_step():
    search = _search(AbortLeavesAGhost())
    assert run_search(search, 300, 0, 50)
    scenario, broken = search.failure
    assert any(request.abort_at is not None for request in scenario.requests)
    again = replay(AbortLeavesAGhost(), scenario, RULES).broken
    assert again == broken


class CrashesWhenIdle(ModelTarget):
    """Crashes in the third step after its last request has ended."""

    def start(self, system, revision, config):
        self._live, self._idle = set(), 0
        return super().start(system, revision, config)

    def add(self, request):
        reply = super().add(request)
        self._live |= {request["id"]} if reply["ok"] else set()
        self._idle = 0
        return reply

    def step(self):
        self._idle += not self._live
        if self._idle == 3:
            raise TargetCrashed("step", "ValueError: max() arg is an empty sequence")
        reply = super().step()
        self._live -= {*reply["step"]["finished"], *reply["step"].get("aborted", [])}
        return reply


def test_a_failure_after_the_last_request_has_ended_replays():
    search = _search(CrashesWhenIdle())
    assert run_search(search, 300, 0, 50)
    scenario, broken = search.failure
    assert broken[0].rule == "ALL-R01"
    assert replay(CrashesWhenIdle(), scenario, RULES).broken == broken


@pytest.mark.slow
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
    search = Search(SearchOptions(OnlySomeLeaveAGhost(), "vllm", "documented", rules, "small"))
    assert run_search(search, 300, 0, 50)
    scenario, broken = search.failure
    assert any(request.priority for request in scenario.requests if request.abort_at is not None)
    assert replay(OnlySomeLeaveAGhost(), scenario, rules).broken == broken


@pytest.mark.slow
def test_the_same_seed_gives_the_same_runs():
    first, second = _search(ModelTarget(), "documented"), _search(ModelTarget(), "documented")
    run_search(first, 60, 7, 30)
    run_search(second, 60, 7, 30)
    assert (first.runs, first.steps, first.failure) == (second.runs, second.steps, second.failure)
    assert first.exercised == second.exercised


@pytest.mark.slow
def test_a_known_rule_ends_a_run_but_not_the_search():
    search = _search(AbortLeavesAGhost(), known=frozenset({"ALL-R03"}))
    assert not run_search(search, 60, 0, 0)
    assert search.failure is None
    assert search.runs >= 60


@pytest.mark.parametrize("operation", ["step", "start"])
def test_nonsense_of_a_target_ends_the_search_and_is_not_shrunk(operation):
    class Nonsense(ModelTarget):
        asked = 0

        def start(self, *about):
            return self.answer() if operation == "start" else super().start(*about)

        def step(self):
            return self.answer()

        def answer(self):
            Nonsense.asked += 1
            return {"ok": True, "step": {"kind": "prefill"}}

    with pytest.raises(TargetBroken):
        run_search(_search(Nonsense()), 10, 0, 100)
    assert Nonsense.asked == 1


class CrashesAtStart(ModelTarget):
    """Raises at `start` if fewer than three requests fit into a batch."""

    def start(self, system, revision, config):
        if config["max_num_seqs"] < 3:
            raise ValueError("too few")
        return super().start(system, revision, config)


def test_a_crash_at_the_start_is_found_and_replays():
    search = _search(CrashesAtStart())
    assert run_search(search, 50, 0, 20)
    scenario, broken = search.failure
    assert (broken[0].rule, len(scenario.requests)) == ("ALL-R01", 1)
    assert replay(CrashesAtStart(), scenario, RULES).broken == broken


def test_a_known_crash_at_the_start_does_not_end_the_search():
    search = _search(CrashesAtStart(), known=frozenset({"ALL-R01"}))
    assert not run_search(search, 30, 0, 0)
    assert search.runs >= 30
    assert search.runs_cut_short["ALL-R01"] > 0


def test_shrinking_stops_at_its_budget():
    search = _search(AbortLeavesAGhost())
    assert run_search(search, 300, 0, 5)
    assert search.runs <= search.runs_to_failure + 6
    search = _search(AbortLeavesAGhost(), shrink_steps=1)
    assert run_search(search, 300, 0, 60)
    assert search.runs <= search.runs_to_failure + 2


@pytest.mark.slow
def test_many_requests_that_come_late_meet_a_batch(monkeypatch):
    met = Counter()
    aimed = generators_of("spyre").beside_the_batch

    def counted(config, history):
        met["batch"] += 1
        return aimed(config, history)

    monkeypatch.setattr(generators_of("spyre"), "beside_the_batch", counted)
    runs = 0
    for seed in range(6):
        search = _search(ModelTarget())
        run_search(search, 100, seed, 0)
        runs += search.runs
    # One run in five, with runs whose requests are all short, or given up, among them, and those
    # in which an earlier one already waits for the limit.
    assert met["batch"] >= runs / 5


def test_a_run_that_ends_between_its_initial_rules_counts_as_empty_unless_it_is_rejected():
    search = Search(SearchOptions(ModelTarget(), "vllm", "documented", (), "small"))
    machine_of(search)().teardown()
    assert (search.runs, search.empty) == (0, 1)
    with contextlib.suppress(RuntimeError):
        try:
            raise RuntimeError("rejected")
        finally:
            machine_of(search)().teardown()
    assert search.empty == 1
