"""Parts explored in processes: what is told, what Ctrl-C leaves, and what counts as broken."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from schedproof.gate.explore import explorer
from schedproof.gate.explore.explorer import (
    Budget,
    Ended,
    Failed,
    Progress,
    confirm,
    explore,
    parts_of,
)
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.spyre.space import SCOPES, Scope
from schedproof.spec.catalogue import load, select

RULES = [rule for rule in load("spyre") if rule.checked]
FEW = tuple(lengths((2, 3, 5), (2, 3)))
SMALL = ExploreOptions("documented", Scope("lengths", "", 2, FEW, (6, 11, 40)))
LARGE = ExploreOptions("sound", SCOPES[0])  # minutes
BUDGET = Budget(600, 1 << 20)


@pytest.fixture(autouse=True)
def _nothing_left():
    """No test leaves a process."""
    yield
    assert not multiprocessing.active_children()


def finished(options):
    run = Exploration(options, RULES)
    for _ in run.search.run():
        pass
    return run.result()


@pytest.mark.slow
def test_a_clock_that_is_set_forward_is_no_time_limit(monkeypatch):
    days = itertools.count(time.time(), 86_400.0)
    monkeypatch.setattr(explorer.time, "time", lambda: next(days))
    [*_, last] = explore([SMALL], RULES, 1, BUDGET)
    assert isinstance(last, Ended)
    assert last.why == ""


@pytest.mark.slow
def test_every_part_ends_with_what_one_process_finds():
    other = replace(SMALL, revision="2.1.2")
    events = [*explore([SMALL, other], RULES, 2, BUDGET)]
    ended = {event.result.options: event for event in events if isinstance(event, Ended)}
    assert {part: event.result for part, event in ended.items()} == {
        SMALL: finished(SMALL),
        other: finished(other),
    }
    assert [event.why for event in ended.values()] == ["", ""]


@pytest.mark.slow
def test_a_part_that_has_no_such_configuration_fails_and_the_others_go_on():
    wrong = replace(SMALL, scope=replace(SMALL.scope, config=(("chunk_size", 3),)))
    events = [*explore([wrong, SMALL], RULES, 1, BUDGET)]
    failed, ended = events
    assert isinstance(failed, Failed)
    assert failed.options == wrong
    assert "chunk_size" in failed.why
    assert isinstance(ended, Ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "budget", "why"),
    [
        (LARGE, replace(BUDGET, seconds=0.3), "the time limit was reached"),
        (LARGE, replace(BUDGET, memory_mb=1), "the memory limit of 1 MB was reached"),
        (replace(SMALL, deepest=3), BUDGET, "paths were cut"),
        (replace(SMALL, order="random", walks=3), BUDGET, "sampled"),
    ],
)
def test_what_is_not_explored_to_the_end_says_why(options, budget, why):
    [event] = explore([options], RULES, 1, budget)
    assert isinstance(event, Ended), event
    assert event.why == why
    assert not event.result.complete
    assert event.result.states > 0


@pytest.mark.slow
def test_what_the_time_is_over_for_does_not_begin():
    assert [*explore([LARGE, SMALL], RULES, 1, replace(BUDGET, seconds=-1))] == []


def interrupt(monkeypatch, when):
    """Ctrl-C while the first process waits for the others, once `when` says so."""
    wait, pressed = explorer.wait, []

    def interrupted(*args, **options):
        if when() and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return wait(*args, **options)

    monkeypatch.setattr(explorer, "wait", interrupted)


@pytest.mark.slow
def test_ctrl_c_ends_with_what_there_is_and_begins_nothing_else(monkeypatch):
    events = []
    interrupt(monkeypatch, lambda: events)
    for event in explore([LARGE, SMALL], RULES, 1, BUDGET):
        events.append(event)
    assert isinstance(events[0], Progress)
    [ended] = [event for event in events if not isinstance(event, Progress)]
    assert isinstance(ended, Ended), ended
    assert ended.why == "interrupted"
    assert ended.result.options == LARGE
    assert ended.result.states >= events[0].states > 0
    assert ended.result.open > 0


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3])
def test_ctrl_c_before_a_process_has_begun_is_no_traceback(monkeypatch, capfd, delay):
    """It is starting, or importing, or has just begun."""
    interrupt(monkeypatch, lambda: time.sleep(delay) is None)
    [event] = explore([LARGE], RULES, 1, BUDGET)
    assert not isinstance(event, Progress)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_process_that_dies_is_told(monkeypatch):
    events = []
    for event in explore([LARGE], RULES, 1, BUDGET):
        events.append(event)
        if isinstance(event, Progress):
            for process in multiprocessing.active_children():
                process.kill()
    assert events[-1] == Failed(LARGE, "its process died")


@pytest.mark.slow
def test_whoever_stops_listening_leaves_no_process():
    events = explore([LARGE, LARGE], RULES, 2, BUDGET)
    next(events)
    events.close()


# The command line, which says when it hears of a part.
TELLING = """
from schedproof.gate.cli import app
from schedproof.gate.explore import report
told = report.Reporter.__call__
def tell(reporter, event):
    told(reporter, event)
    print(type(event).__name__, flush=True)
report.Reporter.__call__ = tell
app.main()
"""


def running(group):
    """Processes that are left of the group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_ctrl_c_at_the_terminal_is_exit_3_with_partial_results(tmp_path):
    """It reaches every process of the group at the same time."""
    words = ["--scope", "lengths", "--scope", "sequential", "--limits", "40", "--jobs", "1"]
    command = [sys.executable, "-c", TELLING, "explore", *words]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line == "Progress\n":
                break
        time.sleep(0.2)  # back to waiting
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        for _ in range(100):
            if not running(process.pid):
                break
            time.sleep(0.1)
        assert not running(process.pid)
    finally:
        if running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 3, (out, err)
    assert "; interrupted, " in out
    assert " states left open, depth " in out
    assert out.endswith("left out, not started: sound sequential, 3 requests, limit 40\n")
    assert err == ""


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 35])
def test_parts_hold_every_limit_once_and_nothing_else_changes(count, jobs):
    limits = tuple(range(6, 6 + count))
    options = ExploreOptions("2.5.2", replace(SCOPES[1], limits=limits), "depth", deepest=9)
    parts = parts_of(options, jobs)
    assert tuple(limit for part in parts for limit in part.scope.limits) == limits
    assert all(part.scope.limits for part in parts)
    assert {replace(part, scope=options.scope) for part in parts} == {options}
    assert {replace(part.scope, limits=limits) for part in parts} == {options.scope}
    assert len(parts) <= jobs


def test_random_walks_are_not_split():
    """Each part would take all the walks, so their number would depend on the processes."""
    scope = replace(SMALL.scope, limits=tuple(range(6, 14)))
    walking = replace(SMALL, scope=scope, order="random", walks=10)
    assert parts_of(walking, 2) == [walking]


def test_parts_find_together_what_the_whole_finds():
    whole = replace(SMALL, scope=replace(SMALL.scope, limits=tuple(range(6, 14))))
    found = [
        {
            (example.rule, limit)
            for part in parts
            for example in finished(part).counterexamples
            for limit in example.limits
        }
        for parts in ([whole], parts_of(whole, 2))
    ]
    assert found[0] == found[1] != set()


def counterexample():
    [overrun] = [
        example
        for example in finished(SMALL).counterexamples
        if example.rule == "SPY-R07" and 6 in example.limits
    ]
    return overrun


def test_a_counterexample_is_confirmed_at_each_of_its_limits():
    example = counterexample()
    broken = confirm(example, RULES)
    assert set(broken) == set(example.limits)
    for limit, (scenario, outcome) in broken.items():
        assert scenario.config["max_batch_tkv"] == limit
        assert [broke.rule for broke in outcome.broken] == ["SPY-R07"]


def test_a_counterexample_that_keeps_its_rule_is_not_confirmed():
    example = counterexample()
    assert confirm(replace(example, rule="SPY-R30"), RULES) == {}
    assert set(confirm(replace(example, limits=(6, 40)), RULES)) == {6}


def test_a_counterexample_of_a_revision_that_keeps_the_rule_is_not_confirmed():
    example = counterexample()
    scenario = type(example.scenario)(
        system="spyre",
        revision="sound",
        config=example.scenario.config,
        requests=example.scenario.requests,
    )
    assert confirm(replace(example, scenario=scenario), select(RULES, ["SPY-R07"])) == {}
