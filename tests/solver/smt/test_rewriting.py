"""Rewritten functions do what the original ones do."""

import ast
from types import SimpleNamespace

import pytest

from schedproof.solver.smt.rewriting import Simpler

FUNCTIONS = {
    "an assertion": """
def f(n):
    assert n != 3, f"{n} is three"
    return n
""",
    "assignments in an expression": """
def f(n):
    if (m := n + 1) > 2 and m < 5:
        return m
    elif (m := min((k := n * 2), 3)) == 0:
        return (k, m)
    if max(n, (m := n + 3), m) == 6:
        return m
    if n < (m := n + 1) and n > 3:
        return m
    return (n := n + 1) * n
""",
    "patterns of values": """
def f(n):
    match n:
        case 0:
            return "none"
        case 1 | 2:
            found = "few"
        case 3 if n > 3:
            return "never"
        case more if more == 4:
            found = more + 1
        case None:
            return None
        case _:
            found = "many"
    return found
""",
    "patterns of classes": """
def f(n):
    match SimpleNamespace(kind="prefill" if n == 1 else "decode", size=n):
        case SimpleNamespace(kind="prefill"):
            return 0
        case SimpleNamespace(kind="decode" | "idle", size=2 | 3):
            return 1
        case other:
            return other.size
""",
    "a match without a case": """
def f(n):
    match n + 1:
        case 1:
            return 7
""",
    "filter and map": """
def f(n):
    def odd(k):
        return k % 2

    n = range(n)
    return (
        [*filter(lambda n: n > 1, n)], [*filter(odd, n)], [*filter(None, n)], [*map(odd, n)],
        [*map(lambda n, k: n * k, n, n)],
    )
""",
}


def answers(tree):
    scope = {"SimpleNamespace": SimpleNamespace}
    exec(compile(tree, "<rewritten>", "exec"), scope)
    found = []
    for number in range(6):
        try:
            found.append(scope["f"](number))
        except AssertionError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("of", FUNCTIONS)
def test_a_rewritten_function_gives_the_same_answers(of):
    tree, simpler = ast.parse(FUNCTIONS[of]), Simpler().visit(ast.parse(FUNCTIONS[of]))
    assert answers(simpler) == answers(tree)
    left = {type(node) for node in ast.walk(simpler)}
    assert not left & {ast.Assert, ast.Match, ast.NamedExpr}
    assert "filter(" not in ast.unparse(simpler)


@pytest.mark.parametrize(
    "line",
    [
        "n = n and (m := n)",
        "n = [m := n]",
        "n = m(m := n)",
        "match n:\n        case [m]: pass",
        "match n:\n        case True: pass",
        "match n:\n        case int(m): pass",
        "match n:\n        case {}: pass",
        "n = [*map(lambda *n: n, n)]",
        "n = [*filter(lambda n=n: n, n)]",
    ],
)
def test_what_has_no_simpler_form_is_left_as_it_is(line):
    tree = ast.parse(f"def f(n, m):\n    {line}")
    assert ast.unparse(Simpler().visit(tree)) == ast.unparse(ast.parse(ast.unparse(tree)))
