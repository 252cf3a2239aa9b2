"""Find what a loop carries from one item to the next, and take the body out of a loop.

A loop that carries nothing does the same for each item, whatever items came before.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeGuard, cast

from .memory import PACKAGE
from .rewriting import Simpler


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its name, as `Class.function`, except functions nested in other
    functions."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield within + inner.name, inner
        elif isinstance(inner, ast.ClassDef):
            yield from functions(inner, f"{within}{inner.name}.")


def made_here(function: ast.AST) -> set[str]:
    """Return the variables of a function that only refer to lists and dicts that the function
    itself has made."""
    made, others = set[str](), set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            others.add(node.arg)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part, value in _pairs(target, node.value):
                    is_new = isinstance(part, ast.Name) and _is_new(value)
                    (made if is_new else others).update(_set_by(part))
        elif isinstance(node, ast.For | ast.comprehension | ast.AugAssign):
            others.update(_set_by(node.target))
    return made - others


def _pairs(target: ast.expr, value: ast.expr | None) -> list[tuple[ast.expr, ast.expr | None]]:
    """Return the targets of an assignment with their values. If both sides are written as tuples,
    return them pair by pair."""
    match target, value:
        case ast.Tuple(elts=parts), ast.Tuple(elts=values) if len(parts) == len(values):
            return [*zip(parts, values, strict=True)]
    return [(target, value)]


def _is_new(node: ast.AST | None) -> bool:
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.List | ast.Dict | ast.ListComp) or called in (
        *("list", "sorted", "dict", "dict.fromkeys"),
    )


def carried_by(function: ast.AST) -> Iterator[tuple[str, ast.For]]:
    """Yield the variables that a function's loops carry from one item to the next, with the loops.

    A loop carries a variable if it may read a value that it set for an earlier item: it reads the
    variable before setting it, or a nested function may read it. It also carries a list or dict
    that it fills and that the function reads before the loop ends.
    """
    defined = [each for each in ast.walk(function) if isinstance(each, ast.FunctionDef)]
    closed = {name for each in defined[1:] for name in _reads(each)}
    for loop in ast.walk(function):
        if isinstance(loop, ast.For):
            nodes = [part for statement in loop.body for part in ast.walk(statement)]
            inner = {
                id(name)
                for each in nodes
                if isinstance(each, ast.comprehension)
                for name in ast.walk(each.target)
            }
            set_by = {each.id for each in nodes if _is(each, ast.Store) and id(each) not in inner}
            early = set(closed)
            _follow(loop.body, _set_by(loop.target), early)
            filled = dict[str, set[int]]()
            for node in nodes:
                for name in _filled_by(node):
                    filled.setdefault(name.id, set()).add(id(name))
            read = {
                each.id
                for each in ast.walk(function)
                if _is(each, ast.Load)
                and each.lineno <= (loop.end_lineno or 0)
                and id(each) not in filled.get(each.id, ())
            }
            yield from ((name, loop) for name in sorted(set_by & early | filled.keys() & read))


def counted(node: ast.BinOp) -> tuple[str, set[str]]:
    """Return the list whose length (plus or minus a constant) is the left side of a subtraction,
    and the names in it. Return an empty text for any other expression."""
    match node:
        case ast.BinOp(
            left=ast.BinOp(left=ast.Call(func=ast.Name(id="len"), args=[of]), right=ast.Constant())
            | ast.Call(func=ast.Name(id="len"), args=[of]),
            op=ast.Sub(),
        ):
            return ast.unparse(of), {each.id for each in ast.walk(of) if isinstance(each, ast.Name)}
    return "", set()


def _is(node: ast.AST, context: type[ast.expr_context]) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, context)


def _filled_by(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the name of the list or dict that a statement changes, if it changes one."""
    match node:
        case ast.Subscript(value=ast.Name() as name, ctx=ast.Store()):
            yield name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as name))):
            yield name
        case ast.Expr(value=ast.Call(func=ast.Name(), args=[ast.Name() as name, *_])):
            yield name


def set_in(function: ast.AST) -> set[str]:
    """Return all variables of a function, and of the functions and comprehensions within it."""
    defined = [each for each in ast.walk(function) if isinstance(each, ast.FunctionDef)]
    given = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    return given | _set_by(function) | {each.name for each in defined if each is not function}


def _set_by(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if _is(node, ast.Store)}


def _follow(body: list[ast.stmt], given: set[str], early: set[str]) -> bool:
    """Add to `early` the variables that the statements read and that are not in `given`. Add to
    `given` the variables that the statements set. Return whether control can reach the end of the
    statements."""
    for statement in body:
        if isinstance(statement, ast.If):
            early |= _reads(statement.test) - given
            sides = [set(given), set(given)]
            goes_on = [
                _follow(side, known, early)
                for side, known in zip((statement.body, statement.orelse), sides, strict=True)
            ]
            left = [known for known, on in zip(sides, goes_on, strict=True) if on]
            if not left:
                return False
            given |= set.intersection(*left)
            continue
        if isinstance(statement, ast.For):
            early |= _reads(statement.iter) - given
            _follow(statement.body, given | _set_by(statement.target), early)
            continue
        early |= _reads(statement) - given
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            given |= _set_by(statement)
        if isinstance(statement, ast.Continue | ast.Break | ast.Return | ast.Raise):
            return False
    return True


def _reads(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if _is(each, ast.Load)}
    return names | (_set_by(node.target) if isinstance(node, ast.AugAssign) else set())


def source_of(scope: Mapping[str, Any]) -> str:
    """Return the text of the module with these global names."""
    return cast(str, scope["__loader__"].get_source(scope["__name__"]))


@cache
def tree_of(code: CodeType, source: str) -> ast.FunctionDef | None:
    """Return the syntax tree of a function, rewritten in simpler statements. Return None if the
    function is not in the text of its module."""
    made = [compile(source, code.co_filename, "exec", dont_inherit=True)]
    for each in made:
        made += [part for part in each.co_consts if isinstance(part, CodeType)]
    if code not in made:
        return None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
            if min(lines) == code.co_firstlineno:
                return cast(ast.FunctionDef, Simpler().visit(node))
    return None


def name_of(function: FunctionType) -> str:
    """Return the name of a function as MODULE.FUNCTION, relative to the package `model`."""
    module = function.__globals__["__name__"].removeprefix(f"{PACKAGE}.")
    return f"{module}.{function.__code__.co_qualname}"


def body_of(module: ModuleType, name: str) -> Callable[..., dict[str, Any]]:
    """Return the body of a function's last loop as a function. It takes the loop's variables as
    keyword arguments, and returns all of them after one iteration. Global names are looked up in
    the module at each call.

    Raises:
        ValueError: the body may end the loop early.
    """
    tree = dict(functions(ast.parse(source_of(vars(module)))))[name]
    loop = [node for node in tree.body if isinstance(node, ast.For)][-1]
    parts = [node for part in (loop.target, *loop.body) for node in ast.walk(part)]
    if any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in parts):
        raise ValueError(f"the loop of {name} may end early")
    names = {node.id for node in parts if isinstance(node, ast.Name)}
    local = sorted(names - vars(module)["__builtins__"].keys() - vars(module).keys())
    text = ast.parse(f"def body({', '.join(local)}): return locals()")
    cast(ast.FunctionDef, text.body[0]).body[:0] = loop.body
    made = compile(ast.fix_missing_locations(text), name, "exec")
    [code] = [part for part in made.co_consts if isinstance(part, CodeType)]
    return FunctionType(code, vars(module), name, (None,) * len(local))
