"""What schedproof is compared with draws evenly, and what it draws are runs."""

import subprocess
from importlib import import_module

import pytest

from schedproof.model.scenario import check_requests
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.spec.catalogue import load
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import planted
from schedproof.tools.benchmarks import (
    explorers,
    figures,
    models,
    processes,
    spin,
    starting,
    vectorized,
)
from schedproof.tools.benchmarks.explorers import QUESTIONS, QUICK, Answer, Question, answers, rows
from schedproof.tools.benchmarks.figure import NotMeasured, in_turns
from schedproof.tools.benchmarks.models import REQUESTS, SUBJECTS, running, stepping
from schedproof.tools.benchmarks.plain import (
    LATEST,
    Plain,
    at_published_sizes,
    by_chance,
    by_hypothesis,
    ranges,
    request_of,
    values_of_keys,
)

EASY = next(fault for fault in mutants_of("llmservingsim") if fault.bug == "LSS-005")


@pytest.mark.slow
def test_every_key_has_every_value_that_our_configurations_have():
    values = values_of_keys("nano_vllm", "0.2.0")
    assert set(values["block_size"]) == {2, 3, 4, 8}
    assert values["max_num_seqs"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("end", [0, 1])
def test_the_ends_of_all_ranges_are_requests(end):
    bounds = ranges({"block_size": 4, "max_model_len": 32})
    request = request_of(3, [bound[end] for bound in bounds])
    check_requests((request,))
    assert request.prompt_len == (1, 32)[end]
    assert request.arrival == (0, LATEST)[end]
    assert (request.abort_at is None) == bool(end)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [by_hypothesis, by_chance])
def test_both_find_a_bug_that_every_run_shows(engine):
    rules = [rule for rule in load(EASY.system) if rule.checked]
    with planted(EASY) as target:
        plain = import_module("schedproof.tools.benchmarks.plain")
        trial = plain.Plain(target, EASY.system, EASY.revision, rules, lambda broken, _: broken)
        getattr(plain, engine.__name__)(trial, EASY.system, EASY.revision, lambda: trial.runs >= 60)
    assert trial.found


@pytest.mark.slow
@pytest.mark.parametrize("engine", [by_hypothesis, by_chance])
def test_neither_finds_anything_where_nothing_is_broken(engine):
    rules = [rule for rule in load("llmservingsim") if rule.checked]
    trial = Plain(ModelTarget(), "llmservingsim", "documented", rules, lambda broken, _: broken)
    engine(trial, "llmservingsim", "documented", lambda: trial.runs >= 25)
    assert (trial.found, trial.runs) == (False, 25)


def test_published_sizes_are_those_of_the_configuration_as_it_is(monkeypatch):
    drawn: list[dict[str, object]] = []
    monkeypatch.setattr(Plain, "run", lambda self, values, requests: drawn.append(dict(values)))
    trial = Plain(ModelTarget(), "spyre", "sound", (), lambda broken, _: broken)
    at_published_sizes(trial, "spyre", "sound", lambda: len(drawn) >= 3)
    assert drawn == [full_config("spyre", "sound", {})] * 3


@pytest.mark.slow
def test_a_command_takes_longer_than_python_alone():
    alone, *commands = starting.rows(quick=True)
    assert (alone.what, alone.ratio) == (starting.PYTHON, 1.0)
    assert [row.what for row in commands] == [*starting.BEGIN][1:]
    assert all(row.ratio is not None and row.ratio > 1 for row in commands)


def test_a_command_that_fails_is_no_figure():
    with pytest.raises(subprocess.CalledProcessError):
        starting.begin(["-c", "raise SystemExit(2)"])


def test_figures_have_different_names():
    names = [plan.name for plan in figures.PLANS]
    assert len(set(names)) == len(names) == 7


def test_chosen_figures_are_in_the_order_of_the_table():
    assert [plan.name for plan in figures.chosen(["jobs", "models"])] == ["models", "jobs"]
    assert figures.chosen([]) == list(figures.PLANS)


def test_works_take_turns_and_each_has_its_median_rate():
    times = iter([0.0, 1.0, 0.0, 4.0, 0.0, 2.0, 0.0, 4.0, 0.0, 3.0, 0.0, 4.0])
    order: list[str] = []

    def work(name, done):
        order.append(name)
        return done

    works = [lambda: work("first", 6.0), lambda: work("second", 8.0)]
    assert in_turns(works, 3, lambda: next(times)) == [3.0, 2.0]
    assert order == ["first", "second"] * 3


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_eight_requests_decode_in_every_step(subject):
    model, state = running(subject)
    for _ in range(3):
        state, seen = model.step(state)
        assert seen["kind"] == "decode"
        assert len(seen["scheduled"]) == REQUESTS
    assert stepping(subject, 5)() == 5


def test_nobody_ends_while_it_is_measured():
    assert 20 * REQUESTS + 1_500 < models.TOKENS


def test_every_model_has_a_row_beside_the_first(monkeypatch):
    monkeypatch.setattr(models, "in_turns", lambda works, rounds: [100.0, *[50.0] * 5])
    found = list(models.rows(quick=True))
    assert [row.what for row in found] == [subject.name for subject in SUBJECTS]
    assert [row.ratio for row in found] == [1.0, *[0.5] * 5]


def test_both_take_turns_and_are_compared(monkeypatch):
    calls: list[str] = []

    def run(words, ends):
        calls.append(words[-1])
        return 3.0 if words[-1] == "1" else 2.0

    monkeypatch.setattr(processes, "run", run)
    alone, two, *_ = processes.rows(quick=False)
    assert calls[: 2 * processes.ROUNDS] == ["1", "2"] * processes.ROUNDS
    assert (alone.ratio, two.ratio) == (1.0, 2 / 3)
    assert "1.50 times as fast" in two.note


def test_a_search_that_breaks_nothing_is_no_proof_and_all_others_are():
    assert [processes.ENDS.get(name, 0) for name in processes.COMMANDS] == [0, 3, 0, 0]
    assert processes.run(["rules", "SPY-R07"], 0) > 0


@pytest.mark.slow
def test_a_command_that_ends_otherwise_is_said():
    with pytest.raises(NotMeasured, match=r"gate --nonsense: exit code 2, .*--nonsense"):
        processes.run(["gate", "--nonsense"], 0)


def test_without_numpy_the_figure_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(vectorized, "find_spec", lambda name: None)
    with pytest.raises(NotMeasured, match=r"needs schedproof\[fast\]") as why:
        next(vectorized.rows(quick=True))
    assert why.value.excused


def test_a_lane_takes_as_many_steps_as_the_model():
    pytest.importorskip("numpy")
    from schedproof.model.spyre.lanes import read_rules, requests_table, run

    config, loads = vectorized.config_of(3), vectorized.loads_of(3, 2)
    rules = read_rules(vectorized.REVISION, config)
    reported = run(rules, requests_table(rules, loads))
    assert reported.steps.sum() == vectorized.model_steps(config, loads)


def test_lanes_have_a_row_beside_the_model():
    pytest.importorskip("numpy")
    found = list(vectorized.rates(2, 2, 1))
    assert [row.what for row in found] == ["reference model: 2 requests", "lanes: 2 requests"]
    assert found[0].ratio == 1.0
    assert all(row.value for row in found)


def reported(monkeypatch, ours, theirs):
    monkeypatch.setattr(spin, "MISSING", [])
    monkeypatch.setattr(explorers, "by_explorer", lambda question, seconds, reduced: ours)
    monkeypatch.setattr(explorers, "by_spin", lambda question, seconds, late: theirs)


def test_answers_that_disagree_are_an_error(monkeypatch):
    reported(monkeypatch, Answer(True, 1, 1, 1.0, 1.0), Answer(False, 1, 1, 1.0, 1.0))
    with pytest.raises(AssertionError, match="the tools disagree"):
        answers(QUICK[0], 1.0)


def test_what_is_cut_short_took_at_least_so_long(monkeypatch):
    reported(monkeypatch, Answer(True, 5, 100, 2.0, 30.0), Answer(None, 9, 800, 4.0, 99.0))
    found = {row.what.partition(":")[0]: row for row in rows(quick=True)}
    assert found["Spin, pace"].value == 200
    assert found["Spin, pace"].ratio == 4.0
    answer = found["Spin, answer"]
    assert (answer.value, answer.at_least, answer.ratio, answer.ratio_at_least) == (
        4,
        True,
        2,
        True,
    )


def test_without_spin_the_figure_says_so(monkeypatch):
    reported(monkeypatch, Answer(True, 5, 100, 2.0, 30.0), Answer(True, 5, 100, 2.0, 30.0))
    monkeypatch.setattr(spin, "MISSING", ["spin", "gcc"])
    *_, last = rows(quick=True)
    assert (last.what, last.value) == ("Spin", None)
    assert last.note == "not measured: spin and gcc not installed"


def test_the_explorer_answers_the_quick_question():
    [answer] = explorers._explore(QUICK[0], 20.0, True)
    assert answer.holds is True
    assert answer.transitions >= answer.states > 0


def test_questions_are_named_by_their_scope():
    assert str(QUESTIONS[1]) == "3 requests, limit 26"
    assert str(Question("SPY-R07", "2.1.2", 2, range(6, 41))) == "2 requests, limit 6-40"
