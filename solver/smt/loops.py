"""Checks that a function's loops treat every item alike, whatever came before it.

If they do, a few items can stand for any number of items. The check reads the syntax tree:
`findings` reports every place where a loop distinguishes an item by its position, or remembers
earlier items. It reads only the functions that it is given, not those that they call.
"""

import ast
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

# Methods that change the object on which they are called, and functions that change their argument.
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
CHANGING |= {"reverse", "setdefault", "sort", "update", "appendleft", "extendleft", "popleft"}
CHANGING |= {"rotate", "difference_update", "intersection_update", "symmetric_difference_update"}
INSERTING = {"heappush", "insort", "insort_left", "insort_right"}
# Functions that count or pair items, or take some of them.
BY_PLACE = {"accumulate", "count", "cycle", "enumerate", "islice", "iter", "next", "pairwise"}
BY_PLACE |= {"dropwhile", "index", "range", "reduce", "sum", "takewhile"}
# Functions that can read or set a variable without naming it.
BY_PLACE |= {"delattr", "eval", "exec", "globals", "locals", "setattr", "vars"}
ENDS = (0, -1)  # a loop may use only these constants as indices


def findings(source: str) -> Iterator[str]:
    """Yield `FUNCTION FINDING` for each reason why a function's loops may treat items differently.
    The finding is the variable that a loop carries from one item to the next, or the expression
    that distinguishes items."""
    for name, function in functions(ast.parse(source)):
        found = {what for node in ast.walk(function) for what in _by_place(node)}
        others = _other_names(function)
        for node in ast.walk(function):
            if isinstance(node, ast.For):
                found |= carried(node, others)
        yield from (f"{name} {what}" for what in sorted(found))


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its name, as `Class.function`, except functions nested in other
    functions."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield within + inner.name, inner
        elif isinstance(inner, ast.ClassDef):
            yield from functions(inner, f"{within}{inner.name}.")


def _by_place(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.While | ast.Global | ast.Nonlocal | ast.NamedExpr | ast.Break):
        yield type(node).__name__.lower()
    if isinstance(node, ast.Call):
        called = node.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        if name in BY_PLACE:
            yield f"{name}()"
    if isinstance(node, ast.Subscript):
        parts = [*ast.walk(node.slice)]
        places = [part.value for part in parts if isinstance(part, ast.Constant)]
        negative = any(isinstance(part, ast.USub) for part in parts)
        numbers = [-at if negative else at for at in places if isinstance(at, int)]
        computed = isinstance(node.slice, ast.Slice | ast.BinOp | ast.Call)
        if computed or any(at not in ENDS for at in numbers):
            yield f"[{ast.unparse(node.slice)}]"


def _other_names(function: ast.AST) -> list[set[str]]:
    """Return pairs of variables that name one object, as after `first = second`."""
    return [
        {target.id, node.value.id}
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def carried(loop: ast.For, others: list[set[str]]) -> set[str]:
    """Return the variables that a loop carries from one item to the next: it sets or changes them
    for each item, but reads them before it has set them for the current one. `others` are pairs of
    variables that name one object."""
    changed = {name for node in ast.walk(loop) for name in _changes(node)}
    for pair in 2 * others:
        changed |= pair if changed & pair else set()
    given = set(_names(loop.target))
    early: set[str] = set()
    _follow(loop.body, given, early)
    return changed & early


def _changes(node: ast.AST) -> Iterator[str]:
    """Yield the variables that a statement or call sets or changes."""
    if isinstance(node, ast.Delete):
        for target in node.targets:
            yield from _names(target)
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from _names(target)
    if isinstance(node, ast.Call):
        of = node.func
        if isinstance(of, ast.Attribute) and of.attr in CHANGING:
            yield from _names(of.value)
        name = of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")
        if name in INSERTING:
            yield from _names(node.args[0])


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the variables in an expression. In `a.b[c]`, only `a` counts."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id


def _follow(body: list[ast.stmt], given: set[str], early: set[str]) -> bool:
    """Add to `early` the variables that the statements read and that are not in `given`. Add to
    `given` the variables that they set. Return whether control can reach the end of the
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
            _follow(statement.body, given | {*_names(statement.target)}, early)
            _follow(statement.orelse, set(given), early)
            continue
        early |= _reads(statement) - given
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            given |= {target.id for each in targets for target in _set_whole(each)}
        if isinstance(statement, ast.Continue | ast.Break | ast.Return | ast.Raise):
            return False
    return True


def _set_whole(target: ast.AST) -> Iterator[ast.Name]:
    """Yield the names that an assignment sets as a whole. A name does not count if the assignment
    changes only a part of its object."""
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for inner in target.elts:
            yield from _set_whole(inner)


def _reads(node: ast.AST) -> set[str]:
    """Return the variables that a statement reads. Appending to a list, or setting an item, does
    not read it."""
    written = {
        id(call.func.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("append", "add", "extend")
    }
    written |= {
        id(item.value)
        for item in ast.walk(node)
        if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store)
    }
    names = {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name)
        and isinstance(inner.ctx, ast.Load)
        and id(inner) not in written
    }
    if isinstance(node, ast.AugAssign):
        names |= {*_names(node.target)}
    return names


def source_of(module: ModuleType) -> str:
    """Return the text that a module was imported from."""
    return cast(str, cast(Any, module.__loader__).get_source(module.__name__))


def body_of(module: ModuleType, name: str) -> Callable[..., dict[str, Any]]:
    """Return the body of a function's last loop as a function. It takes the loop's variables as
    keyword arguments, and returns all of them after one turn. Global names are looked up in the
    module at each call.

    Raises:
        ValueError: the body may end the loop early.
    """
    tree = dict(functions(ast.parse(source_of(module))))[name]
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
