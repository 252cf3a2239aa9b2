"""Explorations put by: what is taken up again ends as if it had never been broken off, and a file
that is not one's own is refused before anything in it runs."""

import hashlib
import pickle
import threading
from dataclasses import replace
from multiprocessing import Pipe

import pytest

from schedproof.gate.explore import explorer
from schedproof.gate.explore.explorer import (
    MAGIC,
    Budget,
    Ended,
    Progress,
    _work,
    explore,
    load,
    save_checkpoint,
)
from schedproof.gate.files.scenario_file import FileError
from schedproof.model.systems import revisions_of
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.scope import lengths
from schedproof.solver.spyre.space import SHARED, Scope
from schedproof.solver.systems import explored_systems, space_of
from schedproof.spec.catalogue import load as load_catalogue
from schedproof.spec.catalogue import select

RULES = [rule for rule in load_catalogue("spyre") if rule.checked]
FEW = tuple(lengths((2, 3, 5), (2, 3)))
SCOPE = Scope("lengths", "", 2, FEW, (6, 11, 40), "alone")
CACHE = Scope("cache", "", 2, SHARED[:8:3], (40,), "alone", (("prefix_caching", True),))
ASKED = ExploreOptions("documented", SCOPE)
LONG = float("inf")  # a point in time that does not come


def finished(run):
    for _ in run.search.run():
        pass
    return run.result()


def broken_off(options, reports, rules=RULES):
    run = Exploration(options, rules)
    for _ in zip(range(reports), run.search.run(), strict=False):
        pass
    return run


@pytest.mark.slow
@pytest.mark.parametrize("order", ["breadth", "depth", "deepening"])
@pytest.mark.parametrize("revision", ["documented", "2.1.2", "2.5.2"])
def test_what_is_taken_up_again_ends_like_an_exploration_in_one_go(tmp_path, revision, order):
    options = ExploreOptions(revision, SCOPE, order)
    run = broken_off(options, 2)
    assert not run.result().complete
    save_checkpoint(tmp_path, run)
    again = load(tmp_path, options, RULES)
    assert again is not None
    assert finished(again) == finished(Exploration(options, RULES))


@pytest.mark.slow
def test_prompts_that_begin_alike_can_be_put_by_too(tmp_path):
    options = ExploreOptions("2.5.2", CACHE)
    save_checkpoint(tmp_path, broken_off(options, 1))
    assert finished(load(tmp_path, options, RULES)) == finished(Exploration(options, RULES))


EVERY_SCOPE = [
    pytest.param(scope, marks=pytest.mark.slow if number else (), id=f"{system} {scope.name}")
    for system in explored_systems()
    for number, scope in enumerate(reversed(space_of(system).scopes))
]


@pytest.mark.parametrize("scope", EVERY_SCOPE)
def test_what_is_put_by_of_every_scope_goes_on_as_if_it_had_not_been(tmp_path, scope):
    rules = [rule for rule in load_catalogue(scope.system) if rule.checked]
    [revision, *_] = scope.revisions or revisions_of(scope.system)
    options = ExploreOptions(revision, replace(scope, limits=scope.limits[:1]))
    run = broken_off(options, 1, rules)
    save_checkpoint(tmp_path, run)
    again = load(tmp_path, options, rules)
    assert again is not None
    for each in (run, again):
        next(each.search.run(), None)
    assert again.result() == run.result()


def test_an_exploration_can_be_broken_off_more_than_once(tmp_path):
    save_checkpoint(tmp_path, broken_off(ASKED, 1))
    for _ in range(2):
        run = load(tmp_path, ASKED, RULES)
        next(run.search.run())
        save_checkpoint(tmp_path, run)
    assert finished(load(tmp_path, ASKED, RULES)) == finished(Exploration(ASKED, RULES))
    assert len([*tmp_path.iterdir()]) == 1


def test_what_is_finished_stays_finished(tmp_path):
    run = Exploration(ASKED, RULES)
    unbroken = finished(run)
    save_checkpoint(tmp_path, run)
    assert load(tmp_path, ASKED, RULES).result() == unbroken


def ended_in_this_process(options, folder, rules=RULES, ends=LONG, stop=None):
    ours, theirs = Pipe(duplex=False)
    with ours, theirs:
        budget = Budget(LONG, 1 << 20, folder)
        _work(theirs, stop or threading.Event(), options, rules, budget, ends)
        while isinstance(reported := ours.recv(), Progress):  # told of what takes long
            pass
        return reported


@pytest.mark.parametrize("number", [1, 20])
def test_being_stopped_in_the_middle_of_a_state_loses_no_move(tmp_path, monkeypatch, number):
    moves, calls, stop = SchedulerSpace.moves, [], threading.Event()

    def stopped(space, *args):
        calls.append(args)
        if len(calls) == number:
            stop.set()
        return moves(space, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SchedulerSpace, "moves", stopped)
        event = ended_in_this_process(ASKED, tmp_path, stop=stop)
    assert isinstance(event, Ended), event
    assert event.why == "interrupted"
    assert not event.result.complete
    assert ended_in_this_process(ASKED, tmp_path).result == finished(Exploration(ASKED, RULES))


@pytest.mark.slow
def test_the_time_limit_puts_by_and_the_next_call_goes_on(tmp_path):
    first = ended_in_this_process(ASKED, tmp_path, ends=0.0)
    assert first.why == "the time limit was reached"
    assert 0 < first.result.states < finished(Exploration(ASKED, RULES)).states
    again = ended_in_this_process(ASKED, tmp_path)
    assert (again.why, again.result) == ("", finished(Exploration(ASKED, RULES)))


def test_random_walks_are_not_put_by(tmp_path):
    options = ExploreOptions("sound", SCOPE, "random", walks=3)
    assert ended_in_this_process(options, tmp_path).why == "sampled"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("first", [["SPY-R30"], ["SPY-R07"]])
def test_other_rules_are_another_question(tmp_path, first):
    ended_in_this_process(ASKED, tmp_path, select(RULES, first))
    then = ended_in_this_process(ASKED, tmp_path)
    assert isinstance(then, Ended), then
    assert then.result.checked == Exploration(ASKED, RULES).checked


def test_another_question_has_another_file(tmp_path):
    save_checkpoint(tmp_path, broken_off(ASKED, 1))
    others = [
        replace(ASKED, revision="sound"),
        replace(ASKED, scope=replace(SCOPE, limits=(6, 11))),
        replace(ASKED, reduced=False),
    ]
    assert [load(tmp_path, other, RULES) for other in others] == [None] * 3


def refused(folder):
    """The one line with which the file is refused; what is in it has not run."""
    with pytest.raises(FileError) as reported:
        load(folder, ASKED, RULES)
    line = str(reported.value)
    assert line.startswith(f"{folder}")
    assert "\n" not in line
    return line


def spoil(folder, change):
    """The one file, with its bytes changed."""
    save_checkpoint(folder, broken_off(ASKED, 1))
    [path] = folder.iterdir()
    path.write_bytes(change(path.read_bytes()))


HEADER = len(MAGIC) + 65  # a digest of the code in hex, and a line's end


def whole(header, data):
    """A file with the digest of what is in it, as a program that knows the format writes it."""
    return header + hashlib.sha256(data).digest() + data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-40],
        lambda data: data[:HEADER],
        lambda data: data[:HEADER] + b"\xff" * 50,
        lambda data: data[:HEADER] + b"nonsense\n" + data[HEADER:],
        lambda data: whole(data[:HEADER], data[HEADER + 40 :]),
    ],
    ids=["cut", "empty", "other bytes", "shifted", "with its digest"],
)
def test_a_damaged_file_is_refused(tmp_path, change):
    spoil(tmp_path, change)
    assert ": damaged (" in refused(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"exploration 2", b"exploration 1", 1),
        lambda data: data[: len(MAGIC)] + b"0" * 64 + data[HEADER - 1 :],
        lambda data: data[HEADER:],
        lambda data: b"",
    ],
    ids=["format", "code", "no header", "empty"],
)
def test_a_file_of_another_version_is_refused(tmp_path, change):
    spoil(tmp_path, change)
    assert "not an exploration of this version of schedproof" in refused(tmp_path)


def test_a_file_of_other_code_is_refused(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, broken_off(ASKED, 1))
    monkeypatch.setattr(explorer, "version_of_code", lambda: b"0" * 64 + b"\n")
    assert "not an exploration of this version of schedproof" in refused(tmp_path)


def text(word):
    return b"\x8c" + bytes([len(word)]) + word.encode()


def calls(module, name, word):
    """A pickle that calls a function of a module with one word."""
    return b"\x80\x04" + text(module) + text(name) + b"\x93" + text(word) + b"\x85R."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("schedproof.gate.explore.explorer", "os.system"),
        ("schedproof.gate.files.scenario_file", "Path.touch"),
        # A function of a pure layer: a bare getattr, which reaches anything.
        ("schedproof.solver.exploration.undecided", "value_of"),
    ],
)
def test_a_pickle_that_names_anything_else_is_refused_and_runs_nothing(tmp_path, module, name):
    """Also where the way there leads through a module of this package."""
    there = tmp_path / "there"
    command = {"eval": f"open({str(there)!r}, 'w')"}.get(name, f"touch {there}")
    spoil(tmp_path, lambda data: whole(data[:HEADER], calls(module, name, command)))
    assert ": damaged (" in refused(tmp_path)
    assert not there.exists()


@pytest.mark.parametrize("what", [{"a": 1}, Scope("lengths", "", 2)], ids=["data", "no run"])
def test_what_is_no_exploration_is_refused(tmp_path, what):
    spoil(tmp_path, lambda data: whole(data[:HEADER], pickle.dumps(what)))
    assert "saved with other options or rules" in refused(tmp_path)


def test_a_run_under_the_name_of_another_is_refused(tmp_path):
    save_checkpoint(tmp_path, broken_off(replace(ASKED, revision="sound"), 1))
    [path] = tmp_path.iterdir()
    path.rename(explorer._path(tmp_path, ASKED, [rule.id for rule in RULES]))
    assert "saved with other options or rules" in refused(tmp_path)


def test_a_folder_that_is_a_file_is_one_line(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(FileError, match=r"cannot be written to"):
        save_checkpoint(place, broken_off(ASKED, 1))
    with pytest.raises(FileError, match=r"cannot be read"):
        load(place, ASKED, RULES)


@pytest.mark.slow
def test_a_part_whose_file_is_refused_fails_and_says_so(tmp_path):
    spoil(tmp_path, lambda data: b"")
    [event] = explore([ASKED], RULES, 1, Budget(60, 1 << 20, tmp_path))
    assert "not an exploration of this version" in event.why
