"""When two failures are the same."""

import pytest

from schedproof.model.faults import TargetDied, TargetHung
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.failure_signature import place_of, shape
from schedproof.properties.checking.session import Session
from schedproof.spec.catalogue import load


class Crashing(ModelTarget):
    def step(self):
        self.fault()

    def old(self):
        [][0]

    def new(self):
        [][0]


def crash(fault, request="a"):
    target = Crashing()
    target.fault = getattr(target, fault)
    config = full_config("generic", "documented", {})
    run = Session(target, "generic", "documented", config, load("generic"))
    run.add(Request(id=request, arrival=0, prompt=((request, 5),), max_tokens=4))
    [broken] = run.step()
    return shape(broken, [request])


def test_crashes_with_the_same_message_differ_by_the_code_that_raises():
    message = "ALL-R01: the scheduler raised at 'step': IndexError: list index out of range"
    assert crash("old") == f"{message} in old: [][0]"
    assert crash("new") == f"{message} in new: [][0]"
    assert crash("old", "b") == crash("old")


@pytest.mark.parametrize(
    ("traceback", "place"),
    [
        ('  File "a.py", line 3, in step\n    old()\n  File "b.py", line 9, in old\n', "old"),
        ('  File "a.py", line 3, in step\n    old()\nIndexError: 1\n', "step: old()"),
        ("", ""),
        ("no traceback", ""),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in caught\nKeyError: 1\n'
            'Traceback (most recent call last):\n  File "a.py", line 9, in last\n    [][0]\n',
            "last: [][0]",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
            '  File "a.py", line 3 in inner\n  File "a.py", line 9 in step\n',
            "inner",
        ),
    ],
)
def test_a_traceback_names_the_code_that_raises(traceback, place):
    assert place_of(traceback) == place


TRACEBACK = """Traceback (most recent call last):
  File "prog.py", line 12, in <module>
    {0}()
  File "prog.py", line 6, in {0}
    raise IndexError("list index out of range")
IndexError: list index out of range
"""


def death(code, stderr):
    """The shape of a crash that ends the process."""
    target = Crashing()

    def fault():
        raise TargetDied("step", code, stderr)

    target.fault = fault
    config = full_config("generic", "documented", {})
    run = Session(target, "generic", "documented", config, load("generic"))
    run.add(Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=4))
    [broken] = run.step()
    return shape(broken, ["a"])


def test_a_process_that_ends_by_an_exception_crashed_in_the_code_that_raised_it():
    item, two = (death(1, TRACEBACK.format(name)) for name in ("one", "two"))
    assert item.endswith('in one: raise IndexError("list index out of range")')
    assert item != two
    assert death(1, TRACEBACK.format("one")) == item


def hang(stack, request="a"):
    """The shape of a hang with this stack."""
    target = Crashing()

    def fault():
        raise TargetHung("step", 10.0, stack)

    target.fault = fault
    config = full_config("generic", "documented", {})
    run = Session(target, "generic", "documented", config, load("generic"))
    run.add(Request(id=request, arrival=0, prompt=((request, 5),), max_tokens=4))
    [broken] = run.step()
    return shape(broken, [request])


def test_hangs_differ_by_the_function_that_does_not_return_but_not_by_its_line():
    stack = '(most recent call first):\n  File "a.py", line {} in {}\n  File "a.py", line 3 in f'
    words = "ALL-R02: target hung: no reply to 'step' within # s"
    assert hang(stack.format(7, "evict")) == f"{words} in evict"
    assert hang(stack.format(8, "evict"), "b") == hang(stack.format(7, "evict"))
    assert hang(stack.format(7, "admit")) == f"{words} in admit"
    assert hang("") == words


def test_processes_that_end_with_different_codes_or_signals_crashed_differently():
    shapes = {death(code, "") for code in (1, 77, -11, -6)}
    assert len(shapes) == 4
