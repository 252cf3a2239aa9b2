"""A refactoring does what the original code does."""

import ast
import copy
import random

from schedproof.tools.mutation.proof_score import SOUND, Change, drawn
from schedproof.tools.mutation.refactorings import EXPRESSIONS, FUNCTIONS, STATEMENTS, refactored

KINDS = (*EXPRESSIONS, *STATEMENTS, *FUNCTIONS)
ORIGINAL = """
def f(pairs, kind, most):
    lengths = [first + 1 for first, _ in pairs]
    seconds = [pair[1] for pair in pairs]
    low = most + 1
    high = low * 2
    kept = [one for one in seconds if one > 2]
    names, halves = list(seconds), [-(-one // 2) for one in lengths]
    both = [one * other for one, other in zip(lengths, halves, strict=True)]
    longest = max([max(one, most) for one in both]) if both else 0
    rest = longest % 7
    for one in kept:
        rest += 1
        if one > most:
            names.append(one)
    if not names or (kind == "all" and rest > 3):
        return g(rest, high + longest)
    if high > 3 and kept:
        return high
    first = next((one for one in names if one > 4), None)
    if first is None:
        return rest if rest > most else most
    if kind == "few":
        return first
    return h(names), kept


def g(rest, most):
    return rest - most


def h(names):
    for one in names:
        if one > 5:
            return one
    return None
"""


def answers(tree):
    scope = {}
    exec(compile(ast.fix_missing_locations(tree), "<refactored>", "exec"), scope)
    loads = [[], [(1, 5), (2, 3)], [(4, 1)], [(9, 8), (3, 6), (2, 7)]]
    return [
        scope["f"](pairs, kind, most)
        for pairs in loads
        for kind in ("all", "few", "none")
        for most in (0, 2, 9)
    ]


def test_each_kind_of_refactoring_gives_the_same_answers():
    tree, found = ast.parse(ORIGINAL), set()
    expected = answers(copy.deepcopy(tree))
    for kind in KINDS:
        for number, function in enumerate(tree.body):
            for changed in refactored(kind, function):
                other = copy.deepcopy(tree)
                other.body[number] = changed
                assert answers(other) == expected, (kind, ast.unparse(changed))
                found.add(kind)
    assert found == {*KINDS}


def test_each_kind_is_drawn_as_often_as_any_other():
    kinds = 2 * ["a"] + 200 * ["b"]
    every = [Change(f"{kind}: f: {at}", SOUND[0], {}) for at, kind in enumerate(kinds)]
    first = [drawn(every, random.Random(seed))[0].name[0] for seed in range(200)]
    assert 70 < first.count("a") < 130
    assert sorted(drawn(every, random.Random(0))) == sorted(every)
