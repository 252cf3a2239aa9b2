"""A fault says in one line what happened, and at which operation."""

import signal

import pytest

from schedproof.model.errors import InputError
from schedproof.model.faults import (
    ConfigRefused,
    TargetBroken,
    TargetCrashed,
    TargetDied,
    TargetFault,
    TargetHung,
    TargetNotStarted,
    ending,
    excerpt,
    last_words,
)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (ConfigRefused("no such key"), "no such key"),
        (TargetCrashed("step", "boom"), "the scheduler raised at 'step': boom"),
        (TargetHung("step", 2.5), "target hung: no reply to 'step' within 2.5 s"),
        (TargetHung("start", 60.0), "target hung: no reply to 'start' within 60 s"),
        (
            TargetDied("step", 3, "Traceback\nno\n"),
            "target died: it ended with exit code 3 before it answered 'step'; its last words: no",
        ),
        (
            TargetDied("add", 0, ""),
            "target died: it ended with exit code 0 before it answered 'add'",
        ),
        (
            TargetDied("step", 0, ""),
            "target died: it ended with exit code 0 before it answered 'step'",
        ),
        (
            TargetDied("start", -9, ""),
            "target died: it ended with signal SIGKILL before it answered 'start'",
        ),
        (
            TargetDied("start", 1, ""),
            "target died: it ended with exit code 1 before it answered 'start'",
        ),
        (
            TargetDied("start", 0, "bye"),
            "target died: it ended with exit code 0 before it answered 'start' (it must keep "
            "running after a stop, since a start may follow); its last words: bye",
        ),
        (TargetBroken("add", "the reply is 3", ""), "broken target: at 'add' the reply is 3"),
        (
            TargetBroken("add", "the line is no JSON", "it's"),
            """broken target: at 'add' the line is no JSON: "it's\"""",
        ),
        (
            TargetNotStarted(["python", "-c", "print()"], "no such file", "first\nlast"),
            "target not started: 'python': no such file; its last words: last",
        ),
    ],
)
def test_a_fault_prints_as_one_line(fault, line):
    assert str(fault) == line
    assert isinstance(fault, TargetFault)


def test_a_fault_keeps_what_it_is_about():
    crashed = TargetCrashed("step", "boom", "line 1\nline 2")
    assert (crashed.op, crashed.message, crashed.details) == ("step", "boom", "line 1\nline 2")
    assert TargetCrashed("step", "boom").details == ""
    hung = TargetHung("step", 2.5)
    assert (hung.op, hung.seconds) == ("step", 2.5)
    died = TargetDied("step", -9, "bye")
    assert (died.op, died.returncode, died.stderr_tail) == ("step", -9, "bye")
    broken = TargetBroken("step", "why", "line")
    assert (broken.op, broken.why, broken.line_excerpt) == ("step", "why", "line")
    unstarted = TargetNotStarted(["a", "b"], "why", "bye")
    assert (unstarted.command, unstarted.why, unstarted.stderr_tail) == (["a", "b"], "why", "bye")


def test_an_input_error_names_the_place_before_the_problem():
    error = InputError("$.requests[2].prompt", "empty")
    assert (error.path, error.problem) == ("$.requests[2].prompt", "empty")
    assert str(error) == "$.requests[2].prompt: empty"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (255, "exit code 255"),
        (-signal.SIGHUP, "signal SIGHUP"),
        (-signal.SIGKILL, "signal SIGKILL"),
        (-1000, "signal 1000"),
    ],
)
def test_a_process_ends_with_a_code_or_by_a_signal_by_name_if_it_has_one(returncode, words):
    assert ending(returncode) == words


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", ""),
        (" \n\n", ""),
        (
            'Fatal Python error: Aborted\n\nThread (most recent call first):\n  File "a.py"\n',
            "; its last words: Fatal Python error: Aborted",
        ),
        ("one", "; its last words: one"),
        ("first\n  last  \n \n", "; its last words: last"),
        ("x" * 200, "; its last words: " + "x" * 200),
        ("x" * 200 + "y", "; its last words: " + "x" * 200),
    ],
)
def test_last_words_are_the_last_line_that_says_something_cut_at_200(stderr, words):
    assert last_words(stderr) == words


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        (b"abc\n", "abc"),
        (bytearray(b"\xff{}"), "�{}"),
        (b"x" * 200 + b"\n", "x" * 200),
        (b"x" * 199 + b"yz", "x" * 199 + "y"),
        (b"a\n\n", "a"),
    ],
)
def test_an_excerpt_is_how_a_line_begins_cut_at_200_bytes(line, begins):
    assert excerpt(line) == begins
