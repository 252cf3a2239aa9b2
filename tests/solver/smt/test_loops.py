"""What tells some items of a loop apart, or is remembered of earlier ones, is found in its text."""

import importlib.util

import pytest

from schedproof.solver.smt.loops import body_of, findings, imported_by

ALIKE = """
def grown(state, block):
    kept, gone, names = [], [], {}
    for request in state.running:
        if request.computed < request.prompt:
            gone.append(request)
            continue
        length = request.computed + 1
        if length % block:
            request = request.longer()
        names[request.id] = length
        kept.append(request)
    pairs = [(one.id, own) for one, own in zip(kept, state.lengths, strict=True) if own]
    return max(names.values()), state.waiting[0], kept[-1], sorted(pairs)
"""


def test_a_loop_that_does_the_same_for_each_item_is_not_found():
    assert [*findings(ALIKE)] == []


@pytest.mark.parametrize(
    ("line", "instead", "found"),
    [
        ("if length % block:", "if len(kept) == 6:", "kept"),
        ("length = request.computed + 1", "block = block + request.computed", "block"),
        ("length = request.computed + 1", "block += 1; length = 1", "block"),
        ("kept.append(request)", "kept.append(kept.pop() if gone else request)", "gone"),
        ("in state.running:", "in state.running[:6]:", "[:6]"),
        ("in state.running:", "in state.running + (state.running[4],):", "[4]"),
        ("kept[-1]", "kept[len(kept) - 3]", "[len(kept) - 3]"),
        ("max(names.values())", "[at for at, _ in enumerate(kept)]", "enumerate()"),
        ("    return", "    while kept: kept.pop()\n    return", "while"),
        ("continue", "break", "break"),
        ("gone.append(request)", "del gone[-1:]; names[1] = len(gone)", "gone"),
        ("gone.append(request)", "names[1] = gone.popleft()", "gone"),
        ("gone.append(request)", "bisect.insort(gone, request); names[1] = len(gone)", "gone"),
        ("gone.append(request)", "names[1] = len(gone); gone.appendleft(1)", "gone"),
        ("gone.append(request)", "names[1] = len(gone); gone.difference_update(kept)", "gone"),
        ("gone.append(request)", "setattr(state, 'seen', request)", "setattr()"),
        ("gone.append(request)", "state.seen = request", "sets .seen"),
        ("gone.append(request)", "state.lengths.append(1)", "changes state"),
        ("gone.append(request)", "block[0] = block[0] + 1", "changes block"),
        ("if length % block:", "if kept.__len__() == 6:", ".__len__"),
        ("if length % block:", "if state.running.index(request) == 6:", "index()"),
        ("if length % block:", "if isinstance(length, int):", "isinstance()"),
        ("if length % block:", "if str(length) == '7':", "str()"),
        ("if length % block:", "if f'{length}' > block:", "joinedstr"),
        ("if length % block:", "if (length > 3) is True:", "(length > 3) is True"),
        ("if length % block:", "if request.id == 'r7':", "request.id == 'r7'"),
        ("if length % block:", "if request.id in {'r7'}:", "request.id in {'r7'}"),
        ("if length % block:", "if len(grown(state, block)) == 6:", "recursion"),
        ("if length % block:", "if kept == block:", "kept == block"),
        ("if length % block:", "if [1] == block:", "[1] == block"),
        ("if length % block:", "if length in state.EARLY:", "EARLY"),
        ("(state, block)", "(state, block, size=len)", "=len"),
        ("strict=True", "strict=False", "zip()"),
        ("    return", "    first, *rest = kept\n    return", "*rest"),
        ("    return", "    ones = [1 for one in kept]\n    return", "[1 for one in kept]"),
        (
            *(
                "    return",
                "    match kept:\n        case (_, _, _):\n            pass\n    return",
            ),
            "match",
        ),
        ("gone.append(request)", "try: kept[-1]\n            except Exception: pass", "try"),
        ("gone.append(request)", "gone.append(lambda: request)", "code in a loop"),
        (
            "if length % block:\n",
            "if last is not None:\n            request = last\n        if length:\n"
            "            last = request\n        if block:\n",
            "last",
        ),
    ],
)
def test_what_tells_items_apart_is_found(line, instead, found):
    assert ALIKE.count(line) == 1
    assert f"grown {found}" in [*findings(ALIKE.replace(line, instead))]


def test_another_name_of_a_list_that_a_loop_fills_is_found():
    filled = ALIKE.replace("    for request", "    seen = kept\n    for request")
    assert "grown seen" in [*findings(filled.replace("if length % block:", "if len(seen) == 6:"))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from itertools import islice", "imports islice"),
        ("import random", "imports random"),
        ("size = len", "size = len"),
        ("crowded = lambda batch: len(batch) > 6", "lambda batch: len(batch) > 6"),
        ("if True:\n    def seventh(batch): pass", "def seventh(batch):\n    pass"),
    ],
)
def test_what_hides_code_from_the_check_is_found(line, found):
    assert found in [*findings(f"{line}\n{ALIKE}")]


def test_an_object_of_the_module_is_found_but_a_number_is_not():
    asked = ALIKE.replace("if length % block:", "if length in early:")
    assert "grown early" in [*findings(f"early = {{7}}\n{asked}")]
    assert [*findings(f"block = 7\n{ALIKE}")] == []


def test_a_module_that_the_model_imports_only_indirectly_is_read():
    from schedproof.model.spyre import model

    names = {module.__name__.rpartition(".")[2] for module in imported_by(model, {"systems"})}
    assert {"model", "sound", "pool", "sequence"} <= names
    assert "systems" not in names


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
