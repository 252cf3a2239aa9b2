"""Refactorings of the models: other ways to write the same code, made mechanically.

Each kind is tried at every place of a function where it applies. A few results differ from the
original, for example if a moved statement has an effect; the small runs reveal these.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from schedproof.tests.mutants.faults import MODEL

from .proof_score import functions_of

Expression = Callable[[Any], ast.expr | None]
Statements = Callable[[list[Any], int], list[ast.stmt] | None]


def read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def parsed(text: str, **parts: ast.AST | str) -> Any:
    """Return an expression or statements in which the names of the parts are replaced."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> Any:
            part = parts.get(node.id, node)
            if isinstance(part, str):
                return ast.Name(part, node.ctx)
            return copy.deepcopy(part)

    tree = Fill().visit(ast.parse(text))
    first = tree.body[0]
    return first.value if len(tree.body) == 1 and isinstance(first, ast.Expr) else tree.body


def names_in(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def stored(*nodes: ast.AST) -> set[str]:
    return {
        each.id
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def only(node: Any) -> bool:
    """Return whether a comprehension has one loop."""
    return isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1


def tested(part: ast.comprehension) -> ast.expr:
    return part.ifs[0] if len(part.ifs) == 1 else ast.BoolOp(ast.And(), part.ifs)


# Kinds that replace an expression.

TURNED: dict[type, type] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
OPPOSITE: dict[type, type] = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt}


def turn_comparison(node: ast.expr) -> ast.expr | None:
    if not (isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED and not node.ops[1:]):
        return None
    return ast.Compare(node.comparators[0], [TURNED[type(node.ops[0])]()], [node.left])


def negate_comparison(node: ast.expr) -> ast.expr | None:
    if not (isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE and not node.ops[1:]):
        return None
    opposite = ast.Compare(node.left, [OPPOSITE[type(node.ops[0])]()], node.comparators)
    return ast.UnaryOp(ast.Not(), opposite)


def de_morgan(node: ast.expr) -> ast.expr | None:
    if not (isinstance(node, ast.BoolOp) and all(isinstance(e, TRUTHS) for e in node.values)):
        return None
    other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    parts: list[ast.expr] = [ast.UnaryOp(ast.Not(), each) for each in node.values]
    return ast.UnaryOp(ast.Not(), ast.BoolOp(other, parts))


TRUTHS = (ast.Compare, ast.UnaryOp)


def choice_for_extreme(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[left, right]):
            operator = ">=" if name == "max" else "<="
            return cast(ast.expr, parsed(f"L if L {operator} R else R", L=left, R=right))
    return None


def generator_for_list(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Name(id="max" | "min" | "any" | "all" | "tuple"), args=[of]):
            if isinstance(of, ast.ListComp):
                node.args = [ast.GeneratorExp(of.elt, of.generators)]
                return node
    return None


def filter_for_list(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.ListComp(elt=ast.Name(id=own), generators=[part]) if part.ifs:
            if isinstance(part.target, ast.Name) and part.target.id == own:
                text = f"[*filter(lambda {own}: T, I)]"
                return cast(ast.expr, parsed(text, T=tested(part), I=part.iter))
    return None


def map_for_list(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.ListComp(elt=of, generators=[ast.comprehension(ifs=[]) as part]):
            if isinstance(part.target, ast.Name):
                text = f"list(map(lambda {part.target.id}: E, I))"
                return cast(ast.expr, parsed(text, E=of, I=part.iter))
    return None


def other_rounding(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.BinOp(
                left=ast.UnaryOp(op=ast.USub(), operand=of), op=ast.FloorDiv(), right=by
            ),
        ):
            return cast(ast.expr, parsed("(N + D - 1) // D", N=of, D=by))
        case ast.BinOp(op=ast.FloorDiv(), left=of, right=by):
            return cast(ast.expr, parsed("divmod(N, D)[0]", N=of, D=by))
        case ast.BinOp(op=ast.Mod(), left=of, right=by):
            return cast(ast.expr, parsed("N - N // D * D", N=of, D=by))
    return None


def swap_sum(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Mult() as operator, left=left, right=right):
            if not isinstance(left, ast.Tuple) and not isinstance(right, ast.Tuple):
                return ast.BinOp(right, operator, left)
    return None


# Kinds that replace a statement, or some in a row.


def choice_for_branches(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at : at + 2]:
        case [
            ast.If(test=test, body=[ast.Return(value=ast.expr() as first)], orelse=[]),
            ast.Return(value=ast.expr() as other),
        ]:
            return [*body[:at], ast.Return(ast.IfExp(test, first, other)), *body[at + 2 :]]
    return None


def branches_for_choice(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.Return(value=ast.IfExp(test=test, body=first, orelse=other)):
            early: list[ast.stmt] = [ast.If(test, [ast.Return(first)], []), ast.Return(other)]
            return [*body[:at], *early]
    return None


def else_after_return(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.If(test=test, body=[*_, ast.Return()] as early, orelse=[]) if body[at + 1 :]:
            return [*body[:at], ast.If(test, early, body[at + 1 :])]
    return None


def turned_branches(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.If(test=test, body=[*_, ast.Return()] as early, orelse=[]) if body[at + 1 :]:
            if isinstance(body[-1], ast.Return):
                negated = ast.UnaryOp(ast.Not(), test)
                return [*body[:at], ast.If(negated, body[at + 1 :], []), *early]
    return None


def one_test_for_two(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.If(test=ast.BoolOp(op=ast.And(), values=[first, *rest]), body=inner, orelse=[]):
            second = rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest)
            return [*body[:at], ast.If(first, [ast.If(second, inner, [])], []), *body[at + 1 :]]
    return None


def loop_for_list(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.ListComp() as of) if only(of):
            [part] = of.generators
            added = parsed(f"{name}.append(E)\npass", E=of.elt)[:1]
            turn = [ast.If(tested(part), added, [])] if part.ifs else added
            loop = ast.For(part.target, part.iter, turn, [])
            return [*body[:at], *parsed(f"{name} = []\npass")[:1], loop, *body[at + 1 :]]
    return None


def early_continue(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.For(body=[*before, ast.If(test=test, body=inner, orelse=[])]) as loop:
            skip = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Continue()], [])
            loop.body = [*before, skip, *inner]
            return body
    return None


def places_for_pairs(body: list[Any], at: int) -> list[ast.stmt] | None:
    for node in ast.walk(body[at]):
        match node:
            case ast.comprehension(
                target=ast.Tuple(elts=[first, ast.Name(id=own)]),
                iter=ast.Call(func=ast.Name(id="zip"), args=[left, right]),
            ):
                node.target = ast.Tuple([ast.Name("place", ast.Store()), first], ast.Store())
                node.iter = parsed("enumerate(L)", L=left)
                item = parsed("R[place]", R=right)

                class Put(ast.NodeTransformer):
                    def visit_Name(self, each: ast.Name, own: str = own, item: Any = item) -> Any:
                        is_own = each.id == own and isinstance(each.ctx, ast.Load)
                        return copy.deepcopy(item) if is_own else each

                body[at] = Put().visit(body[at])
                return body
    return None


def next_for_loop(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at : at + 2]:
        case [
            ast.For(
                target=target, iter=items, body=[ast.If(test=test, body=[ast.Return(value=found)])]
            ),
            ast.Return(value=ast.expr() as other),
        ]:
            part = ast.comprehension(target, items, [test], 0)
            if isinstance(found, ast.Constant) and isinstance(other, ast.Constant):
                if {found.value, other.value} != {True, False}:
                    return None
                of = test if found.value else ast.UnaryOp(ast.Not(), test)
                all_of = ast.GeneratorExp(of, [ast.comprehension(target, items, [], 0)])
                name = "any" if found.value else "all"
                return [*body[:at], ast.Return(ast.Call(read(name), [all_of], []))]
            chosen = ast.GeneratorExp(cast(ast.expr, found), [part])
            return [*body[:at], ast.Return(ast.Call(read("next"), [chosen, other], []))]
    return None


def assignment_in_test(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at : at + 2]:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.If(test=test) as branch]:
            done = [False]

            class Put(ast.NodeTransformer):
                def visit_Name(self, each: ast.Name) -> Any:
                    if each.id != name or done[0]:
                        return each
                    done[0] = True
                    return ast.NamedExpr(ast.Name(name, ast.Store()), value)

            branch.test = Put().visit(test)
            return [*body[:at], *body[at + 1 :]] if done[0] else None
    return None


def assignment_in_place(body: list[Any], at: int) -> list[ast.stmt] | None:
    """Replace a variable that is read only once by its value."""
    match body[at : at + 2]:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), statement]:
            later = [each for node in body[at + 1 :] for each in ast.walk(node)]
            uses = [each for each in later if isinstance(each, ast.Name) and each.id == name]
            if len(uses) != 1 or uses[0] not in [*ast.walk(statement)]:
                return None
            if isinstance(statement, ast.For) and uses[0] not in [*ast.walk(statement.iter)]:
                return None
            if isinstance(statement, ast.If) and uses[0] not in [*ast.walk(statement.test)]:
                return None
            body[at + 1] = Swap(uses[0], value).visit(statement)
            return [*body[:at], *body[at + 1 :]]
    return None


class Swap(ast.NodeTransformer):
    def __init__(self, before: ast.AST, after: ast.AST) -> None:
        self.before, self.after = before, after

    def visit(self, node: ast.AST) -> Any:
        return self.after if node is self.before else self.generic_visit(node)


def value_of(statement: ast.stmt) -> ast.expr | None:
    return statement.value if isinstance(statement, ast.Return | ast.Assign) else None


def argument_first(body: list[Any], at: int) -> list[ast.stmt] | None:
    """Assign the last argument of a call to a variable first."""
    match value_of(body[at]):
        case ast.Call(args=[*_, last]) as call if not isinstance(last, ast.Starred | ast.Name):
            if isinstance(last, ast.GeneratorExp):
                return None
            call.args[-1] = read("argument")
            return [*body[:at], ast.Assign([ast.Name("argument", ast.Store())], last), *body[at:]]
    return None


def helper_within(body: list[Any], at: int) -> list[ast.stmt] | None:
    """Compute a result in a separate nested function."""
    match body[at]:
        case ast.Return(value=ast.expr() as value) if not isinstance(
            value, ast.Name | ast.Constant
        ):
            helper = parsed("def answer():\n    return V\nreturn_", V=value)[0]
            called = ast.Return(ast.Call(read("answer"), [], []))
            return [*body[:at], helper, called, *body[at + 1 :]]
    return None


def swapped(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at : at + 2]:
        case [ast.Assign() as first, ast.Assign() as second]:
            if stored(first) & names_in(second) or stored(second) & names_in(first):
                return None
            return [*body[:at], second, first, *body[at + 2 :]]
    return None


def one_by_one(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            single = [ast.Assign([n], v) for n, v in zip(names, values, strict=True)]
            return [*body[:at], *single, *body[at + 1 :]]
        case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
            whole = ast.BinOp(read(name), operator, value)
            return [*body[:at], ast.Assign([body[at].target], whole), *body[at + 1 :]]
    return None


def match_for_test(body: list[Any], at: int) -> list[ast.stmt] | None:
    match body[at]:
        case ast.If(
            test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant() as value]),
            body=inner,
            orelse=orelse,
        ):
            cases = [ast.match_case(ast.MatchValue(value), None, inner)]
            cases += [ast.match_case(ast.MatchAs(), None, orelse)] if orelse else []
            return [*body[:at], ast.Match(left, cases), *body[at + 1 :]]
        case ast.If(
            test=ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]),
            body=inner,
            orelse=[],
        ):
            case = ast.match_case(ast.MatchSingleton(None), None, inner)
            return [*body[:at], ast.Match(left, [case]), *body[at + 1 :]]
    return None


def assertion(body: list[Any], at: int) -> list[ast.stmt] | None:
    """State that a number is not negative."""
    match body[at]:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_number(value):
            stated = parsed(f"assert {name} >= 0, f'{{{name}}} is negative'\npass")[:1]
            return [*body[: at + 1], *stated, *body[at + 1 :]]
    return None


def is_number(node: ast.expr) -> bool:
    called = isinstance(node, ast.Call) and ast.unparse(node.func) in NUMBERS
    return called or isinstance(node, ast.BinOp)


NUMBERS = ("max", "min", "len", "blocks_for", "revision.current_tkv", "realigned", "max_tkv")


# Kinds that change a whole function.


def renamed(function: ast.FunctionDef) -> Iterator[ast.FunctionDef]:
    given = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    for name in sorted(stored(*function.body) - given):
        changed = copy.deepcopy(function)
        for each in ast.walk(changed):
            if isinstance(each, ast.Name) and each.id == name:
                each.id = f"its_{name}"
        yield changed


def documented(function: ast.FunctionDef) -> Iterator[ast.FunctionDef]:
    changed = copy.deepcopy(function)
    text = "Return the result of this step."
    changed.body.insert(0, ast.Expr(ast.Constant(text)))
    yield changed


EXPRESSIONS: dict[str, Expression] = {
    "turn a comparison": turn_comparison,
    "negate a comparison": negate_comparison,
    "De Morgan": de_morgan,
    "a conditional expression instead of max": choice_for_extreme,
    "a generator instead of a list": generator_for_list,
    "filter": filter_for_list,
    "map": map_for_list,
    "round in another way": other_rounding,
    "swap the sides of a sum": swap_sum,
}
STATEMENTS: dict[str, Statements] = {
    "a conditional expression instead of if": choice_for_branches,
    "if instead of a conditional expression": branches_for_choice,
    "else after return": else_after_return,
    "turn the branches of if": turned_branches,
    "split a condition": one_test_for_two,
    "a loop instead of a list": loop_for_list,
    "an early continue": early_continue,
    "enumerate instead of zip": places_for_pairs,
    "next, any or all instead of a loop": next_for_loop,
    ":=": assignment_in_test,
    "inline a variable": assignment_in_place,
    "extract a variable": argument_first,
    "extract a function": helper_within,
    "swap two statements": swapped,
    "one assignment after another": one_by_one,
    "match": match_for_test,
    "assert": assertion,
}
FUNCTIONS = {"rename a variable": renamed, "a docstring": documented}


def blocks_of(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield each list of statements in a function, as its node and the field that contains it."""
    for node in ast.walk(function):
        for place in ("body", "orelse"):
            if isinstance(getattr(node, place, None), list) and getattr(node, place):
                yield node, place


def refactored(kind: str, function: ast.FunctionDef) -> Iterator[ast.FunctionDef]:
    """Yield a copy of the function for each change of this kind."""
    if kind in FUNCTIONS:
        yield from FUNCTIONS[kind](function)
    elif kind in EXPRESSIONS:
        for at, node in enumerate(ast.walk(function)):
            if isinstance(node, ast.expr):
                changed = copy.deepcopy(function)
                own = [*ast.walk(changed)][at]
                instead = EXPRESSIONS[kind](own)
                if instead is not None:
                    yield Swap(own, instead).visit(changed) if instead is not own else changed
    else:
        for number, (node, place) in enumerate(blocks_of(function)):
            for at in range(len(getattr(node, place))):
                changed = copy.deepcopy(function)
                own, _ = [*blocks_of(changed)][number]
                body = STATEMENTS[kind](getattr(own, place), at)
                if body is not None:
                    setattr(own, place, body)
                    yield changed


class Refactoring(NamedTuple):
    """A changed file. `line` is the first one that differs; comments are lost."""

    kind: str
    function: str
    line: str
    text: str


def refactorings_of(file: str) -> Iterator[Refactoring]:
    """Yield every refactoring of a file of `model`."""
    tree = ast.parse((MODEL / file).read_text(encoding="utf-8"))
    before = ast.unparse(tree)
    nodes = [*ast.walk(tree)]
    for name, node in functions_of(tree):
        for kind in (*EXPRESSIONS, *STATEMENTS, *FUNCTIONS):
            for changed in refactored(kind, node):
                whole = copy.deepcopy(tree)
                Swap([*ast.walk(whole)][nodes.index(node)], changed).visit(whole)
                text = ast.unparse(ast.fix_missing_locations(whole))
                if text != before:
                    yield Refactoring(kind, name, difference(before, text), text)


def difference(before: str, after: str) -> str:
    """Return the first line that differs."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next((new.strip() for old, new in pairs if old != new), "")
