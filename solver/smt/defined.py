"""Check that code uses only operations that the proof defines for symbols.

`Definitions.call` follows a function of the model and every function that it calls, in any module.
It computes with kinds instead of values (`smt.kinds`): a number, an id, a list of records. It
refuses an operation that is not defined for these kinds. So if nothing is refused, the code does on
symbols what it does on numbers, and does the same for each item of a list.

Every branch counts, whether or not a run takes it. The functions and constants are those that
Python would use, whatever names they have in the text.
"""

import ast
import builtins
from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, get_type_hints

from .execution import UndecidedError
from .expressions import Scope
from .kinds import (
    EMPTY,
    HIDDEN,
    MIXED,
    NOTHING,
    NUMBER,
    PLAIN,
    Kind,
    Known,
    annotated,
    is_within,
    join,
    many,
    parameters_of,
    result_of,
    shows,
)
from .loops import carried_by, made_here, name_of, set_in, source_of, tree_of
from .on_symbols import REPLACED
from .rewriting import REWRITTEN, is_plain


@dataclass
class Definitions:
    """The definitions of a system's proof, in addition to the operations on kinds.

    Attributes:
        fields: the kinds of those fields whose annotations do not determine them.
        assumed: for each function that the proof replaces, the kind of its result. The function's
            code must not change anything, except the fields in `free` of a request that it returns.
        expressions: the kinds of expressions that lemmas are about, by function and text.
        modules: the modules in which `on_symbols` replaces Python's functions.
        carried: the variables, as `MODULE.FUNCTION NAME`, that a loop may carry from one item to
            the next, as a lemma proves.
        hidden: the names of fields that code may read from any value, if the proof replaces that
            code.
        entered: the modules of all functions that are called.
        counts_down: the functions in which a place in a list may be used to count the items that
            are still to come, as a lemma proves.
    """

    fields: Mapping[tuple[type, str], Kind]
    assumed: Mapping[str, Kind]
    expressions: Mapping[tuple[str, str], Kind]
    modules: Collection[str]
    carried: Collection[str]
    free: Collection[str] = ()
    hidden: Collection[str] = ()
    counts_down: Collection[str] = ()
    entered: dict[CodeType, str] = field(default_factory=dict)
    loose: bool = False
    nested: int = 0  # the number of loops around the current statement, and the largest so far
    deepest: int = 0
    ways: int = 0  # ways found so far to learn that there is one more item
    _results: dict[tuple[Any, ...], tuple[Kind, int, int]] = field(default_factory=dict)
    _running: list[CodeType | ast.AST] = field(default_factory=list)

    def call(self, function: Any, *given: Kind, **named: Kind) -> tuple[Kind, int, int]:
        """Return the kind of a function's result, how deep its loops are nested, and in how many
        ways it could count items (`Scope.add`).

        Raises:
            UndecidedError: the function, or one that it calls, does something that the proof does
                not define.
            TypeError: the function does not take these arguments.
        """
        code, name = function.__code__, name_of(function)
        kinds = parameters_of(function, given, named)
        loose = self.loose or name in self.assumed
        key = id(function), loose, tuple(kinds.items())
        if key not in self._results:
            tree = tree_of(code, source_of(function.__globals__))
            if tree is None:
                raise UndecidedError(f"runs {name}, whose code is not in the text of its module")
            scope = Scope(self, function, name, loose, kinds, made_here(tree))
            if code in self._running:
                raise scope.refused(tree, "recursion")
            self._running.append(code)
            self.entered[code] = function.__globals__["__name__"]
            outside = self.nested, self.deepest, self.ways, self.loose
            self.nested, self.deepest, self.ways, self.loose = 0, 0, 0, loose
            result = Body(scope).run(tree)
            assumed = self.assumed.get(name, result)
            if not shows(assumed, result):
                raise scope.refused(tree, f"{name} returns something other than the proof assumes")
            self._results[key] = assumed, self.deepest, self.ways
            self.nested, self.deepest, self.ways, self.loose = outside
            self._running.pop()
        return self._results[key]

    def within(self, scope: Scope, tree: ast.FunctionDef) -> Kind:
        """Return the kind that a nested function returns."""
        if tree in self._running:
            raise scope.refused(tree, "recursion")
        self._running.append(tree)
        result = Body(scope).run(tree)
        self._running.pop()
        return result

    def field_of(self, owner: type, name: str) -> Kind | None:
        for each in owner.__mro__:
            if (each, name) in self.fields:
                return self.fields[each, name]
        hints = get_type_hints(owner)
        return annotated(hints[name]) if name in hints else None


@dataclass
class Body:
    """The statements of a function. `returned` collects the kinds of its results, and `left` the
    kinds of variables where an iteration of the current loop ends early."""

    scope: Scope
    returned: list[Kind] = field(default_factory=list)
    left: list[dict[str, Kind]] = field(default_factory=list)

    def run(self, tree: ast.FunctionDef) -> Kind:
        """Follow the function, and return the kind of its result."""
        code, scope = self.scope.function.__code__, self.scope.function.__globals__
        names = {*code.co_varnames, *code.co_freevars, *code.co_cellvars, *set_in(tree)}
        own = {*REPLACED, *REWRITTEN, "dict", "list"} & (names | scope.keys()) | {"insort"} & names
        if own:
            raise self.scope.refused(tree, f"a {min(own)} that is not Python's")
        decorators = {*map(ast.unparse, tree.decorator_list)}
        if decorators - {"property", "classmethod"} or tree.args.vararg is not None:
            raise self.scope.refused(tree)
        for name, loop in () if self.scope.loose else carried_by(tree):
            if f"{self.scope.name} {name}" not in self.scope.of.carried:
                raise self.scope.refused(loop, f"a loop carries `{name}` from one item to the next")
        if self.block(tree.body):
            self.returned.append(NOTHING)
        result = join(*self.returned)
        if result == MIXED and not self.scope.loose:
            raise self.scope.refused(
                tree, f"the results of {self.scope.name} are of different kinds"
            )
        return HIDDEN if result == MIXED else result

    def block(self, body: list[ast.stmt]) -> bool:
        """Follow statements, and return whether control can reach their end."""
        return False not in [self.statement(each) for each in body]

    def statement(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and self.scope.of.nested:
            self.scope.add(1)
        match node:
            case ast.Return(value=value):
                self.returned.append(NOTHING if value is None else self.scope.lasting(value))
                return False
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case ast.AnnAssign(target=ast.Name(), value=None):
                pass
            case ast.FunctionDef(name=name) if not self.scope.of.nested and is_plain(node):
                self.scope.kinds[name] = Kind("local", (Known(node),))
            case ast.Expr(value=ast.Call() as call):
                self.change(call)
            case ast.Assign(targets=targets, value=value):
                kind = self.scope.lasting(value)
                if targets[1:] and kind not in PLAIN:  # a list would have two names
                    raise self.scope.refused(node)
                for target in targets:
                    self.scope.assign(target, kind)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.scope.assign(target, self.scope.lasting(value))
            case ast.AugAssign(target=ast.Name() as target):
                kind = result_of(node.op, self.scope.named(target), self.scope.value(node.value))
                if kind != NUMBER and not self.scope.loose:  # a list would itself change
                    raise self.scope.refused(node)
                self.scope.kinds[target.id] = HIDDEN if self.scope.loose else kind
            case ast.If():
                return self.branch(node)
            case ast.For(orelse=[]):
                item = self.scope.item(node.iter)
                self.scope.deepen(node, 1)
                self.scope.add(1)
                ways, outside = self.scope.of.ways, self.left
                for _ in range(2):  # the second time, with what the first iteration has set
                    self.scope.of.ways, before, self.left = ways, dict(self.scope.kinds), []
                    self.scope.assign(node.target, item)
                    self.block(node.body)
                    for kinds in (before, *self.left):
                        self.merge(kinds)
                self.left = outside
                self.scope.of.nested -= 1
            case ast.Continue() | ast.Break():
                self.left.append(dict(self.scope.kinds))
                return False
            case ast.Raise(exc=ast.Call(func=func, args=args, keywords=[]), cause=None):
                kind = self.scope.value(func)
                of = kind.of[0].value if kind.name == "known" else None
                if kind.name == "builtin":
                    of = getattr(builtins, kind.of[0])
                if not (isinstance(of, type) and issubclass(of, Exception)):
                    raise self.scope.refused(node)
                for each in args:
                    self.scope.value(each)
                return False
            case _:
                raise self.scope.refused(node)
        return True

    def branch(self, node: ast.If) -> bool:
        self.scope.condition(node.test)
        of, before = self.scope.of, dict(self.scope.kinds)
        ways = of.ways
        goes_on = self.block(node.body)
        after, self.scope.kinds = self.scope.kinds, before
        most = of.ways
        if not of.nested:  # in a loop, different items may take both sides
            of.ways = ways
        other = self.block(node.orelse)
        of.ways = max(most, of.ways)
        if not other:
            self.scope.kinds = after
            return goes_on
        if goes_on:
            self.merge(after)
        return True

    def merge(self, other: Mapping[str, Kind]) -> None:
        for name, kind in other.items():
            self.scope.kinds[name] = join(self.scope.kinds.get(name, EMPTY), kind)

    def change(self, call: ast.Call) -> None:
        """Follow a call that changes a list that this function has made."""
        scope = self.scope
        scope.add(1)
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item], keywords=[]
            ) if name in scope.made:
                scope.kinds[name] = join(scope.kinds[name], many(scope.lasting(item)))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name) as of, attr="sort"), args=[]
            ) if name in scope.made:
                scope.sorted(call, of)
            case ast.Call(func=ast.Name(id="insort"), args=[ast.Name(id=name), item], keywords=[]):
                is_own = scope.function.__globals__.get("insort") is insort
                is_list = name in scope.made and is_within(scope.kinds[name], many(NUMBER))
                if not (is_own and is_list and scope.value(item) == NUMBER):
                    raise scope.refused(call)
                scope.kinds[name] = many(NUMBER)
            case _:
                raise scope.refused(call)
