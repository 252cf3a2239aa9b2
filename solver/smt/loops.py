"""Checks that a function's loops treat every item alike, whatever came before it.

If they do, a few items can stand for any number of items. The check reads the syntax tree:
`findings` reports every place where a loop distinguishes an item by its position, remembers earlier
items, or could tell symbols from numbers. Like every check of syntax, it must be trusted: it does
not follow where an object is passed on, or what its methods do.
"""

import ast
import builtins
import sys
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

# Methods that change the object on which they are called, and functions that change their argument.
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
CHANGING |= {"reverse", "setdefault", "sort", "update", "appendleft", "extendleft", "popleft"}
CHANGING |= {"rotate", "difference_update", "intersection_update", "symmetric_difference_update"}
INSERTING = {"heappush", "insort", "insort_left", "insort_right"}
# The only builtins that may be called: on symbols, they do what they do on numbers, and what they
# return does not depend on the places of items.
BUILTINS = {"all", "any", "bool", "dict", "len", "list", "max", "min", "reversed", "set", "sorted"}
BUILTINS |= {"tuple", "zip"}
COUNTING = {"count", "format", "index", "join"}  # methods that count, find or write items
# The only names that may come from modules outside the package, apart from types.
IMPORTED = {
    "bisect": {"bisect_left", "insort"},
    "dataclasses": {"dataclass", "replace"},
    "functools": {"cache", "partial"},
    "msgspec.structs": {"replace"},
}
TYPES = {"collections.abc", "typing"}
# What could count items, remember one, or hide that the code cannot run on symbols.
UNREAD: tuple[type[ast.AST], ...] = (ast.While, ast.Global, ast.Nonlocal, ast.NamedExpr, ast.Break)
UNREAD += (ast.Match, ast.Try, ast.TryStar, ast.With, ast.Yield, ast.YieldFrom, ast.JoinedStr)
CODE = (ast.FunctionDef, ast.ClassDef, ast.Lambda)
ENDS = (0, -1)  # the only places that may be named


def findings(source: str) -> Iterator[str]:
    """Yield `FUNCTION WHAT` for each thing that a function's loops do differently for some items:
    the variable that a loop carries from one item to the next, or how items are told apart. Code
    outside functions has no name."""
    tree = ast.parse(source)
    yield from (f"imports {name}" for name in _imported(tree))
    own = _own_objects(tree)
    for statement in _elsewhere(tree):
        nodes = [*ast.walk(statement)]
        found = {what for node in nodes for what in _by_place(node)}
        found |= {ast.unparse(node)[:40] for node in nodes if isinstance(node, CODE)}
        if _is_builtin(getattr(statement, "value", None)):
            found.add(ast.unparse(statement))  # another name for it
        yield from sorted(found)
    for name, function in functions(tree):
        nodes = [*ast.walk(function)]
        found = {what for node in nodes for what in _by_place(node)}
        found |= {what for node in nodes for what in _of_others(node)}
        types = {id(part) for node in nodes for part in _types_of(node)}
        read = (node for node in nodes if id(node) not in types)
        found |= {name for node in read for name in _constants(node, own)}
        others = _other_names(function)
        for node in nodes:
            if isinstance(node, ast.For):
                found |= carried(node, others)
        if name.rpartition(".")[2] in _called(name, tree):
            found.add("recursion")
        yield from (f"{name} {what}" for what in sorted(found))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level and node.module not in TYPES:
            known = IMPORTED.get(node.module or "", set())
            yield from (alias.name for alias in node.names if alias.name not in known)


def _own_objects(tree: ast.Module) -> set[str]:
    """Return the names of a module's objects, except numbers. A function could ask such an object
    for what symbols do not answer."""
    made = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    found = set[str]()
    for node in made:
        if not isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name for target in targets for name in _names(target)}
    return found


def _types_of(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (annotation := getattr(node, name, None)) is not None:
            yield from ast.walk(annotation)


def _constants(node: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the object of this or, by the way in which it is written, of another module that is
    used here."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in own:
        yield node.id
    if isinstance(node, ast.Attribute) and node.attr.isupper():
        yield node.attr


def _elsewhere(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement of a module that is in no function."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield from _elsewhere(inner)
        elif not isinstance(inner, ast.FunctionDef):
            yield inner


def _called(name: str, tree: ast.Module) -> set[str]:
    """Return the functions of a module that one of them calls, directly or not."""
    calls = dict[str, set[str]]()
    for own, function in functions(tree):
        called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = {node.id for node in called if isinstance(node, ast.Name)}
        names |= {
            node.attr
            for node in called
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls", "revision")
        }
        calls.setdefault(own.rpartition(".")[2], set()).update(names)
    reached, waiting = set[str](), [*calls[name.rpartition(".")[2]]]
    while waiting:
        if (called_name := waiting.pop()) not in reached:
            reached.add(called_name)
            waiting += calls.get(called_name, ())
    return reached


def _is_builtin(node: Any) -> bool:
    return isinstance(node, ast.Name) and hasattr(builtins, node.id)


def _of_others(function: ast.AST) -> Iterator[str]:
    """Yield the variables of others that a function changes: a loop that calls it could remember
    something there."""
    if not isinstance(function, ast.FunctionDef | ast.Lambda):
        return
    own: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            own |= {target.id for each in targets for target in _set_whole(each)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call | ast.Delete | ast.AugAssign | ast.Assign):
            whole = {
                target.id for each in getattr(node, "targets", ()) for target in _set_whole(each)
            }
            yield from (f"changes {name}" for name in {*_changes(node)} - whole - own)


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its name, as `Class.function`, except functions nested in other
    functions."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield within + inner.name, inner
        elif isinstance(inner, ast.ClassDef):
            yield from functions(inner, f"{within}{inner.name}.")


def _by_place(node: ast.AST) -> Iterator[str]:
    if isinstance(node, UNREAD):
        yield type(node).__name__.lower()
    if isinstance(node, ast.For) and any(isinstance(inner, CODE) for inner in ast.walk(node)):
        yield "code in a loop"
    if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Store):
        yield ast.unparse(node)
    if isinstance(node, ast.Call):
        yield from _called_by_place(node)
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("__"):
            yield f".{node.attr}"
        if isinstance(node.ctx, ast.Store):
            yield f"sets .{node.attr}"
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    if isinstance(node, ast.arguments):
        yield from (f"={ast.unparse(each)}" for each in node.defaults if _is_builtin(each))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        items = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        targets = {name for part in node.generators for name in _names(part.target)}
        if not targets & {name for item in items for name in _reads(item)}:
            yield ast.unparse(node)
    if isinstance(node, ast.Subscript):
        parts = [*ast.walk(node.slice)]
        places = [part.value for part in parts if isinstance(part, ast.Constant)]
        negative = any(isinstance(part, ast.USub) for part in parts)
        numbers = [-at if negative else at for at in places if isinstance(at, int)]
        computed = isinstance(node.slice, ast.Slice | ast.BinOp | ast.Call)
        if computed or any(at not in ENDS for at in numbers):
            yield f"[{ast.unparse(node.slice)}]"


def _called_by_place(call: ast.Call) -> Iterator[str]:
    if _is_builtin(call.func):
        name = cast(ast.Name, call.func).id
        strict = any(
            option.arg == "strict" and ast.unparse(option.value) == "True"
            for option in call.keywords
        )
        if name not in BUILTINS or (name == "zip" and not strict):
            yield f"{name}()"
    elif isinstance(call.func, ast.Attribute) and call.func.attr in COUNTING:
        yield f"{call.func.attr}()"


def _compared(node: ast.Compare) -> Iterator[str]:
    """Yield a comparison that Python answers without asking a symbol, or one of an id."""
    sides = [node.left, *node.comparators]
    constants = [
        part.value for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)
    ]
    identity = any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
    of_objects = identity and constants != [None]
    equality = any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
    plain = any(isinstance(side, ast.Constant | ast.Attribute) for side in sides)  # no list
    text = any(isinstance(value, str) for value in constants)
    if of_objects or (equality and not plain) or text:
        yield ast.unparse(node)


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


def imported_by(module: ModuleType, apart: Collection[str]) -> list[ModuleType]:
    """Return a module and all those of its package's parent that it imports, directly or not, by
    their text; those with a name in `apart` are left out."""
    top = module.__name__.rsplit(".", 2)[0]
    found, waiting = dict[str, ModuleType](), [module.__name__]
    while waiting:
        name = waiting.pop()
        if name not in sys.modules or name in found or name.removeprefix(f"{top}.") in apart:
            continue
        found[name] = sys.modules[name]
        for node in ast.walk(ast.parse(source_of(found[name]))):
            if isinstance(node, ast.ImportFrom) and node.level:
                whence = ".".join([name.rsplit(".", node.level)[0], *filter(None, [node.module])])
                names = [whence, *(f"{whence}.{alias.name}" for alias in node.names)]
                waiting += [each for each in names if each.startswith(f"{top}.")]
    packages = [name for name, each in found.items() if hasattr(each, "__path__")]
    return [each for name, each in found.items() if name not in packages]


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
