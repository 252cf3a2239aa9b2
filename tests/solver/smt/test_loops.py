"""What a loop carries from one item to the next is found in its text."""

import ast
import importlib.util

import pytest

from schedproof.solver.smt.loops import body_of, carried_by, made_here

LOOP = """
def grown(state, block):
    kept, gone, names = [], [], {}
    for request in state.running:
        length = request.computed + 1
        if length % block:
            gone.append(request)
            continue
        names[request.id] = length
        kept.append(request)
    return kept, gone, names
"""


def carried(text):
    return {name for name, _ in carried_by(ast.parse(text))}


def test_a_loop_that_does_the_same_for_each_item_carries_nothing():
    assert carried(LOOP) == set()
    assert made_here(ast.parse(LOOP)) == {"kept", "gone", "names"}


@pytest.mark.parametrize(
    ("line", "instead", "found"),
    [
        ("if length % block:", "if len(kept) == 6:", {"kept"}),
        ("length = request.computed + 1", "block = block + request.computed", {"block"}),
        ("length = request.computed + 1", "block += 1; length = 1", {"block"}),
        ("kept.append(request)", "kept.append(gone)", {"gone"}),
        ("names[request.id] = length", "names[request.id] = len(names)", {"names"}),
        ("    for request in", "    seen = kept\n    for request in", {"kept"}),
        ("    for request in", "    seen = [kept]\n    for request in", {"kept"}),
        ("kept.append(request)", "insort(kept, len(kept))", {"kept"}),
        (
            "if length % block:\n",
            "if last is not None:\n            request = last\n        if length:\n"
            "            last = request\n        if block:\n",
            {"last"},
        ),
        (
            "        names[request.id] = length\n",
            "        for one in state.waiting:\n            block = one.prompt\n",
            {"block"},
        ),
    ],
)
def test_what_a_loop_carries_is_found(line, instead, found):
    assert LOOP.count(line) == 1
    assert carried(LOOP.replace(line, instead)) == found


def test_a_variable_that_another_one_may_name_is_not_only_made_here():
    for other in ("kept = state.running", "for kept in gone: pass", "kept += gone"):
        assert "kept" not in made_here(ast.parse(f"{LOOP}\n    {other}"))


LOOPS = """
def total(numbers):
    result, seen = 0, []
    for number in numbers:
        result = result + number
        seen.append(number)
    return result, seen


def first_even(numbers):
    for number in numbers:
        if number % 2 == 0:
            return number
    return None
"""


def test_one_turn_of_a_loop_runs_from_any_values(tmp_path):
    path = tmp_path / "loops.py"
    path.write_text(LOOPS, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("loops", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen = [1]
    after = body_of(module, "total")(result=40, seen=seen, number=2)
    assert (after["result"], seen) == (42, [1, 2])
    with pytest.raises(ValueError, match="may end early"):
        body_of(module, "first_even")
