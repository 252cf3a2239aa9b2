"""Rewrite some statements as simpler ones that do the same.

`assert` becomes `if` and `raise`, `match` becomes `if`, an assignment within an expression becomes
a statement before it if nothing is evaluated first, and `filter` and `map` become generator
expressions. So the proof has to define only the simpler statements. A statement that stays as it
was, for example a pattern with positions, is refused later.
"""

import ast
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

REWRITTEN = {"filter", "map", "zip", "isinstance", "AssertionError"}  # must be Python's own
Statements = ast.stmt | list[ast.stmt]


class Simpler(ast.NodeTransformer):
    """Rewrites a function. The variables that it adds have names that no code can have."""

    def __init__(self) -> None:
        self.numbers = count()

    def new_name(self, what: str) -> str:
        return f"{what} {next(self.numbers)}"

    def visit_Assert(self, node: ast.Assert) -> Statements:
        error = ast.Call(_read("AssertionError"), [node.msg] if node.msg else [], [])
        test = ast.UnaryOp(ast.Not(), node.test)
        return self.visit_If(_at(node, ast.If(test, [ast.Raise(error)], [])))

    def visit_If(self, node: ast.If) -> Statements:
        return self.hoisted(node, "test")

    def visit_Return(self, node: ast.Return) -> Statements:
        return self.hoisted(node, "value") if node.value else node

    def visit_Assign(self, node: ast.Assign) -> Statements:
        return self.hoisted(node, "value")

    def visit_Expr(self, node: ast.Expr) -> Statements:
        return self.hoisted(node, "value")

    def hoisted(self, node: ast.stmt, place: str) -> list[ast.stmt]:
        """Move the assignments that an expression begins with to the front of its statement."""
        done, expression = list[ast.stmt](), getattr(node, place)
        while (found := _first(expression)) is not None:
            expression = _replaced(expression, found)
            done += self.each(node, [ast.Assign([found.target], found.value)])
        setattr(node, place, expression)
        return [*done, cast(ast.stmt, self.generic_visit(node))]

    def each(self, node: ast.AST, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the rewritten form of the statements that replace a node."""
        seen = [self.visit(_at(node, statement)) for statement in statements]
        return [part for each in seen for part in (each if isinstance(each, list) else [each])]

    def visit_Match(self, node: ast.Match) -> Statements:
        subject = self.new_name("subject")
        rest = list[ast.stmt]()
        for case in reversed(node.cases):
            made = self.case(subject, case, rest)
            if made is None:
                return node
            rest = made
        first = ast.Assign([ast.Name(subject, ast.Store())], node.subject)
        return self.each(node, [first, *rest])

    def case(
        self, subject: str, case: ast.match_case, rest: list[ast.stmt]
    ) -> list[ast.stmt] | None:
        """Return a `case` as statements, which continue with `rest` if the case does not apply.
        Return None if its pattern is not defined."""
        test = _test(case.pattern, _read(subject))
        captures = list[ast.stmt]()
        if isinstance(case.pattern, ast.MatchAs) and case.pattern.name is not None:
            if case.pattern.pattern is not None:
                return None
            captures = [ast.Assign([_store(case.pattern.name)], _read(subject))]
            test = ast.Constant(True)
        if test is None:
            return None
        if case.guard is not None:
            test = ast.BoolOp(ast.And(), [test, case.guard])
        if isinstance(test, ast.Constant):
            return [*captures, *case.body]
        return [*captures, ast.If(test, case.body, rest)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="filter"), args=[function, items], keywords=[]):
                item = self.new_name("item")
                called = _called(function, [item])
                if called is not None:
                    names, test = called
                    return _generator(node, _read(names[0]), names, items, [test])
            case ast.Call(func=ast.Name(id="map"), args=[function, *lists], keywords=[]) if lists:
                called = _called(function, [self.new_name("item") for _ in lists])
                if called is not None:
                    names, result = called
                    items = lists[0] if len(lists) == 1 else ast.Call(_read("zip"), lists, [])
                    return _generator(node, result, names, items, [])
        return node


def _at(node: ast.AST, made: Any) -> Any:
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def _generator(
    node: ast.AST, of: ast.expr, names: Sequence[str], items: ast.expr, tests: list[ast.expr]
) -> ast.GeneratorExp:
    parts: list[ast.expr] = [*map(_store, names)]
    target = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Store())
    made = ast.GeneratorExp(of, [ast.comprehension(target, items, tests, 0)])
    return cast(ast.GeneratorExp, _at(node, made))


def _called(function: ast.expr, names: list[str]) -> tuple[list[str], ast.expr] | None:
    """Return the names of the arguments, and the call to the function with them. Return None if
    such a call is not defined. The function of `filter` may be None."""
    if isinstance(function, ast.Constant) and function.value is None:
        return names, _read(names[0])
    if not isinstance(function, ast.Lambda):
        simple = isinstance(function, ast.Name | ast.Attribute)
        return (names, ast.Call(function, [*map(_read, names)], [])) if simple else None
    own = parameters(function)
    return (own, function.body) if own is not None and len(own) == len(names) else None


def parameters(function: ast.Lambda | ast.FunctionDef) -> list[str] | None:
    """Return the names of a function's parameters; None if some are optional or starred."""
    given = function.args
    if given.vararg or given.kwarg or given.defaults or given.kw_defaults or given.kwonlyargs:
        return None
    return [each.arg for each in (*given.posonlyargs, *given.args)]


def is_plain(function: ast.FunctionDef) -> bool:
    """Return whether defining this function within another one runs no code. It runs none if the
    function has no decorators and no default values, and its annotations call nothing."""
    given = function.args
    hints = [function.returns, *[each.annotation for each in (*given.posonlyargs, *given.args)]]
    simple = (*SIMPLE, ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.BitOr)
    parts = [part for hint in hints if hint is not None for part in ast.walk(hint)]
    is_bare = not function.decorator_list and parameters(function) is not None
    return is_bare and all(isinstance(part, simple) for part in parts)


def _first(node: ast.expr) -> ast.NamedExpr | None:
    """Return the first assignment in an expression if only constants, fields and other names are
    evaluated before it, or else None."""
    names = set[str]()
    while not isinstance(node, ast.NamedExpr):
        for part in _operands(node):
            if not all(isinstance(each, SIMPLE) for each in ast.walk(part)):
                node = part
                break
            names |= {each.id for each in ast.walk(part) if isinstance(each, ast.Name)}
        else:
            return None
    return None if node.target.id in names else node


SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.expr_context)


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the parts that an expression always evaluates, in the order of evaluation."""
    match node:
        case ast.BoolOp(values=[first, *_]) | ast.UnaryOp(operand=first) | ast.IfExp(test=first):
            return [first]
        case ast.Attribute(value=first) | ast.Subscript(value=first):
            return [first]
        case ast.Compare(left=left, comparators=[right, *_]) | ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(func=function, args=given, keywords=options):
            return [function, *given, *(option.value for option in options)]
    return []


def _replaced(node: ast.expr, found: ast.NamedExpr) -> ast.expr:
    """Return the expression with the assignment replaced by a read of its variable."""

    class Replace(ast.NodeTransformer):
        def visit_NamedExpr(self, each: ast.NamedExpr) -> ast.expr:
            return _at(each, _read(each.target.id)) if each is found else each

    return cast(ast.expr, Replace().visit(node))


def _test(pattern: ast.pattern, subject: ast.expr) -> ast.expr | None:
    """Return the condition under which a pattern matches; None if it is not defined. Booleans
    would be compared by identity, which symbols do not have."""
    match pattern:
        case ast.MatchAs(pattern=None, name=None):
            return ast.Constant(True)
        case ast.MatchSingleton(value=None):
            return ast.Compare(subject, [ast.Is()], [ast.Constant(None)])
        case ast.MatchValue(value=value):
            return ast.Compare(subject, [ast.Eq()], [value])
        case ast.MatchOr(patterns=patterns):
            tests = [_test(each, subject) for each in patterns]
            known = [test for test in tests if test is not None]
            return ast.BoolOp(ast.Or(), known) if len(known) == len(tests) else None
        case ast.MatchClass(cls=of, patterns=[], kwd_attrs=names, kwd_patterns=patterns):
            tests = [
                _test(each, ast.Attribute(subject, name, ast.Load()))
                for name, each in zip(names, patterns, strict=True)
            ]
            known = [ast.Call(_read("isinstance"), [subject, of], [])]
            known += [test for test in tests if test is not None]
            return ast.BoolOp(ast.And(), known) if len(known) == len(tests) + 1 else None
    return None
