"""Follow the expressions of a function, with kinds instead of values (`smt.kinds`)."""

import ast
import builtins
import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import FunctionType
from typing import Any, cast

import msgspec

from .execution import UndecidedError
from .kinds import (
    HIDDEN,
    KEYED,
    LISTING,
    LOOSE,
    LOOSE_BUILTINS,
    LOOSE_METHODS,
    MESSAGE,
    MIXED,
    NAME,
    NOTHING,
    NUMBER,
    PLAIN,
    TRUTH,
    Kind,
    Known,
    by_id,
    can_compare,
    can_sort,
    check_class,
    is_condition,
    is_record,
    is_within,
    item_at,
    item_of,
    items_added,
    join,
    kind_of,
    many,
    of_model,
    place_in,
    record,
    result_of,
    result_of_builtin,
    row,
    stream,
)
from .loops import counted, made_here, name_of
from .memory import PACKAGE
from .rewriting import parameters

MOST_NESTED = 3  # loops in loops; with n of them, code can find out whether there are n + 1 items
# A nested loop counts as this many ways: it could ask whether each request is followed by another.
WITHIN = 5


@dataclass
class Scope:
    """A call to a function, with arguments of these kinds.

    Attributes:
        of: what the proof defines (`smt.defined.Definitions`).
        loose: whether the proof replaces the function, or a function that calls it.
        made: the variables that hold lists and dicts which the function has just made.
        inner: the variables of the comprehensions and lambdas around the current expression.
        varying: the variables that are set in a loop.
    """

    of: Any
    function: FunctionType
    name: str
    loose: bool
    kinds: dict[str, Kind]
    made: set[str]
    inner: set[str] = field(default_factory=set)
    varying: set[str] = field(default_factory=set)

    def refused(self, node: ast.AST, why: str = "") -> UndecidedError:
        file = self.function.__globals__["__name__"].removeprefix(f"{PACKAGE}.").replace(".", "/")
        text = why or f"`{ast.unparse(node).partition(chr(10))[0]:.60}`"
        line = getattr(node, "lineno", self.function.__code__.co_firstlineno)
        where = f"model/{file}.py, line {line}"
        return UndecidedError(f"does something that the proof does not define: {text} ({where})")

    def add(self, items: int) -> None:
        """Add `items` to the number of ways in which the function could notice one more item. A
        loop is such a way, and so is a variable set in a loop. An item or a list added to a list is
        one too, because it shifts the list against another one."""
        self.of.ways += 0 if self.loose else items

    def deepen(self, node: ast.AST, by: int) -> None:
        """Record that the code at `node` is inside `by` more loops. Raise UndecidedError if too
        many loops are nested."""
        self.add(WITHIN if by and self.of.nested else 0)
        self.of.nested += by
        self.of.deepest = max(self.of.deepest, self.of.nested)
        if self.of.deepest > MOST_NESTED and not self.loose:
            raise self.refused(node, f"nests more than {MOST_NESTED} loops")

    def assign(self, target: ast.expr, kind: Kind) -> None:
        match target:
            case ast.Name():
                self.kinds[target.id] = kind
                self.varying |= {target.id} if self.of.nested else set()
            case ast.Tuple(elts=parts):
                for part, own in zip(parts, self.parts(target, kind), strict=True):
                    self.assign(part, own)
            case ast.Subscript(value=ast.Name(id=name)) if name in self.made:
                key, held = self.value(target.slice), self.kinds[name]
                if self.loose:
                    return
                if key != NAME or held.name != "by id":
                    raise self.refused(target)
                self.kinds[name] = by_id(join(*held.of, kind))
            case _:
                raise self.refused(target)

    def parts(self, target: ast.Tuple, kind: Kind) -> list[Kind]:
        """Return the kinds of the parts of a value that the code unpacks."""
        if kind.name == "record" and issubclass(kind.of[0], tuple):
            kind = row(*(self.attribute(target, kind, name) for name in kind.of[0]._fields))
        if kind.name == "row" and len(kind.of) == len(target.elts):
            return list(kind.of)
        if kind != HIDDEN and kind.name != "many":
            raise self.refused(target)
        return [HIDDEN if kind == HIDDEN else kind.of[0]] * len(target.elts)

    def condition(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            for each in node.values:
                self.condition(each)
        elif not (is_condition(self.value(node)) or self.loose):
            raise self.refused(node)

    def item(self, node: ast.expr) -> Kind:
        """Return the kind of the items over which a loop runs."""
        kind = self.value(node)
        item = HIDDEN if kind == HIDDEN and self.loose else item_of(kind)
        self.add(len(kind.of) if kind.name == "row" else 0)
        if item == MIXED:
            raise self.refused(node)
        return item

    def lasting(self, node: ast.expr) -> Kind:
        """Return the kind of an expression whose value the code stores."""
        kind = self.value(node)
        if kind.name == "local" or (kind.name == "stream" and not self.loose):
            raise self.refused(node)
        return kind

    def value(self, node: ast.expr) -> Kind:
        kind: Kind | None = self.of.expressions.get((self.name, ast.unparse(node)))
        if kind is None:
            kind = self.expression(node)
        if kind == MIXED and self.loose and isinstance(node, (*LOOSE, ast.Name)):
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.expr):
                    self.value(each)
            return HIDDEN
        if kind == MIXED:
            raise self.refused(node)
        return kind

    def expression(self, node: ast.expr) -> Kind:
        """Return the kind of an expression, or MIXED if the proof does not define it."""
        if (
            self.loose
            and isinstance(node, LOOSE)
            and not isinstance(node, ast.Attribute | ast.Tuple | ast.IfExp)
        ):
            return MIXED
        match node:
            case ast.Constant(value=value):
                return kind_of(value)
            case ast.Name():
                return self.named(node)
            case ast.Attribute(value=value, attr=name):
                kind = self.value(value)
                if kind == HIDDEN and self.loose:
                    if name not in self.of.hidden:  # it could be a property
                        raise self.refused(node)
                    return HIDDEN
                return self.attribute(node, kind, name)
            case ast.Tuple() | ast.List():
                return self.display(node)
            case ast.Dict(keys=keys, values=values):
                same = all(key is None or self.value(key) == NAME for key in keys)
                items = [*zip(keys, map(self.lasting, values), strict=True)]
                same = same and all(key or kind.name == "by id" for key, kind in items)
                parts = (kind if key else kind.of[0] for key, kind in items if same)
                return by_id(join(*parts)) if same else MIXED
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node)
            case ast.Call():
                return self.called(node)
            case ast.JoinedStr(values=values):
                for part in values:
                    if isinstance(part, ast.FormattedValue):
                        is_plain = self.value(part.value) in PLAIN  # others may have a `__repr__`
                        if not is_plain or part.format_spec is not None:
                            return MIXED
                return MESSAGE
            case ast.BinOp(left=left, op=operator, right=right):
                first, second = self.value(left), self.value(right)
                if second.name == "place":
                    return NUMBER if self.counts_down(node, second) else MIXED
                self.add(items_added(first, second))
                return result_of(operator, first, second)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand)
                return TRUTH
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return NUMBER if self.value(operand) == NUMBER else MIXED
            case ast.BoolOp(values=values):
                self.condition(node)
                return join(*map(self.lasting, values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.condition(test)
                return join(self.lasting(body), self.lasting(orelse))
            case ast.Compare(left=left, ops=operators, comparators=others):
                sides = pairwise(map(self.value, (left, *others)))
                pairs = zip(operators, sides, strict=True)
                same = all(can_compare(operator, *pair) for operator, pair in pairs)
                return TRUTH if same else MIXED
            case ast.Subscript(value=value, slice=place):
                of = NUMBER if isinstance(place, ast.Slice) else self.value(place)
                return item_at(self.value(value), ast.unparse(place), of)
        return MIXED

    def named(self, node: ast.Name) -> Kind:
        name, code = node.id, self.function.__code__
        if name in self.kinds:
            return self.kinds[name]
        cells = dict(zip(code.co_freevars, self.function.__closure__ or (), strict=True))
        if name in cells:
            return kind_of(cells[name].cell_contents)
        if name in self.function.__globals__:
            return kind_of(self.function.__globals__[name])
        is_own = getattr(getattr(builtins, name, None), "__name__", "") == name
        return Kind("builtin", (name,)) if is_own else MIXED

    def attribute(self, node: ast.AST, kind: Kind, name: str) -> Kind:
        if kind.name not in ("known", "record") or name.startswith("__"):
            return MIXED
        if kind.name == "known":
            owner = kind.of[0].value
            if isinstance(owner, type):
                found = inspect.getattr_static(owner, name, None)
                is_method = isinstance(found, classmethod)
                return Kind("method", (Known(found.__func__), kind)) if is_method else MIXED
            return kind_of(getattr(owner, name, MIXED))
        [owner] = kind.of
        check_class(owner)
        of: Kind | None = self.of.field_of(owner, name)
        if of is not None:
            return of
        found = inspect.getattr_static(owner, name, None)
        if isinstance(found, property):
            return self.follow(node, found.fget, kind)
        return Kind("method", (Known(found), kind)) if isinstance(found, FunctionType) else MIXED

    def counts_down(self, node: ast.BinOp, place: Kind) -> bool:
        """Return whether the code counts the items that are still to come, as a lemma defines."""
        text, names = counted(node)
        return text in place.of and not names & self.varying and self.name in self.of.counts_down

    def display(self, node: ast.Tuple | ast.List) -> Kind:
        is_starred = any(isinstance(each, ast.Starred) for each in node.elts)
        if is_starred or isinstance(node, ast.List):
            self.add(len(node.elts) - is_starred)
        items = [
            self.item(each.value) if isinstance(each, ast.Starred) else self.lasting(each)
            for each in node.elts
        ]
        is_many = is_starred or isinstance(node, ast.List)
        return many(join(*items)) if is_many else row(*items)

    def comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
    ) -> Kind:
        before, targets, inner = dict(self.kinds), set[str](), self.inner
        for part in node.generators:
            self.assign(part.target, self.item(part.iter))
            targets |= {each.id for each in ast.walk(part.target) if isinstance(each, ast.Name)}
            self.inner = inner | targets
            self.deepen(node, 1)
            self.add(1)
            for test in part.ifs:
                self.condition(test)
        of = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        kinds = [self.lasting(each) for each in of]
        self.kinds, self.inner = before, inner
        self.of.nested -= len(node.generators)
        read = {each.id for part in of for each in ast.walk(part) if isinstance(each, ast.Name)}
        if not (targets & read or self.loose):
            return MIXED  # it is unknown which item this belongs to
        if isinstance(node, ast.SetComp | ast.DictComp):
            if kinds[0] != NAME:
                return HIDDEN if self.loose else MIXED
            return by_id(NOTHING if len(kinds) == 1 else kinds[1])
        return (stream if isinstance(node, ast.GeneratorExp) else many)(kinds[0])

    # Calls.

    def follow(self, node: ast.AST, function: Any, *given: Kind, **named: Kind) -> Kind:
        module = function.__globals__["__name__"]
        if not of_model(module) or not (self.loose or module in self.of.modules):
            raise self.refused(node)
        try:
            called: tuple[Kind, int, int] = self.of.call(function, *given, **named)
        except TypeError as why:
            raise self.refused(node, f"{why} of {name_of(function)}") from None
        kind, depth, ways = called
        self.deepen(node, depth)
        self.of.nested -= depth
        self.of.ways += ways
        return kind

    def called(self, node: ast.Call) -> Kind:
        func = node.func
        own = self.named(func) if isinstance(func, ast.Name) else MIXED
        keyed = own.name == "builtin" and own.of[0] in KEYED
        has_key = any(option.arg == "key" for option in node.keywords)
        if keyed and (has_key or own.of == ("sorted",)) and len(node.args) == 1:
            ordered = self.sorted(node, node.args[0])
            return ordered if own.of == ("sorted",) else item_of(ordered)
        if isinstance(func, ast.Attribute) and not self.is_module(func.value):
            kind = self.method(node, func)
            if kind is not None:
                return kind
        given = list[Kind]()
        for each in node.args:
            kind = self.value(each.value if isinstance(each, ast.Starred) else each)
            if isinstance(each, ast.Starred) and kind.name != "row":
                return MIXED
            given += kind.of if isinstance(each, ast.Starred) else [kind]
        named = dict[str, Kind]()
        for option in node.keywords:
            kind = self.value(option.value)
            if option.arg is not None:
                named[option.arg] = kind
            elif kind.name == "options":
                named |= dict(kind.of)
            else:
                return MIXED
        return self.apply(node, self.value(func), given, named)

    def is_module(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and inspect.ismodule(
            self.function.__globals__.get(node.id)
        )

    def apply(
        self, node: ast.Call, kind: Kind, given: list[Kind], named: Mapping[str, Kind]
    ) -> Kind:
        """Return the kind of a call's result, or MIXED if the proof does not define it."""
        if kind.name == "applied":
            return self.apply(node, kind.of[0], [*kind.of[1:], *given], named)
        if kind.name == "builtin":
            if self.loose and kind.of[0] in LOOSE_BUILTINS:
                return HIDDEN
            return self.builtin(node, kind.of[0], given, named)
        arguments = {each.name for each in (*given, *named.values())}
        if "local" in arguments or ("stream" in arguments and not self.loose):
            return MIXED
        if kind.name == "local":
            return self.local(node, kind.of[0].value, given, named)
        if kind.name == "method":
            return self.follow(node, kind.of[0].value, kind.of[1], *given, **named)
        value = kind.of[0].value if kind.name == "known" else None
        if value is partial and given and not named:
            return Kind("applied", tuple(given))
        if value in (msgspec.structs.replace, dataclasses.replace) and len(given) == 1:
            return self.replaced(node, given[0], named)
        if is_record(value):
            return self.constructed(node, value, given, named)
        if isinstance(value, FunctionType):
            return self.follow(node, value, *given, **named)
        call = vars(type(value)).get("__call__")
        is_own = isinstance(call, FunctionType) and of_model(type(value).__module__)
        return self.follow(node, call, kind, *given, **named) if is_own else MIXED

    def builtin(
        self, node: ast.Call, name: str, given: list[Kind], named: Mapping[str, Kind]
    ) -> Kind:
        result = result_of_builtin(name, given)
        if name in LISTING:
            self.add(sum(len(kind.of) for kind in given if kind.name == "row"))
        match name, [*named.values()]:
            case _, []:
                pass
            case "zip", [kind] if {*named} == {"strict"} and kind == TRUTH:
                pass
            case "max" | "min", [kind] if {*named} == {"default"}:
                return NUMBER if result == kind == NUMBER else MIXED
            case _:
                return MIXED
        if name == "enumerate" and result != MIXED:
            return stream(row(place_in(node.args[0]), result.of[0].of[1]))
        return result

    def local(
        self, node: ast.AST, function: Any, given: list[Kind], named: Mapping[str, Kind]
    ) -> Kind:
        """Return the kind of the result of a nested function. The nested function reads this
        function's variables as they are at the time of the call."""
        names = parameters(function)
        read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
        kinds = dict(zip(names or (), given, strict=False)) | dict(named)
        if names is None or len(given) + len(named) != len(names) or kinds.keys() != {*names}:
            return MIXED
        # The function does not read the comprehension's variable of the same name.
        if read - {*names} & self.inner:
            return MIXED
        name, made = f"{self.name}.<locals>.{function.name}", made_here(function)
        scope = Scope(self.of, self.function, name, self.loose, self.kinds | kinds, made)
        return cast(Kind, self.of.within(scope, function))

    def constructed(
        self, node: ast.AST, of: Any, given: list[Kind], named: Mapping[str, Kind]
    ) -> Kind:
        check_class(of)
        if self.loose:
            return HIDDEN
        names: Any = getattr(of, "__struct_fields__", None) or getattr(of, "_fields", ())
        if len(given) > len(names):
            return MIXED
        return self.replaced(node, record(of), dict(zip(names, given, strict=False)) | dict(named))

    def replaced(self, node: ast.AST, kind: Kind, named: Mapping[str, Kind]) -> Kind:
        """Return the kind of a record with these fields. Each value must have the kind of its
        field."""
        if kind.name == "record":
            check_class(kind.of[0])
        for name, own in named.items():
            due = self.of.field_of(kind.of[0], name) if kind.name == "record" else None
            may_change = self.loose and name in self.of.free
            if not may_change and (self.loose or due is None or not is_within(own, due)):
                raise self.refused(node)
        return kind

    def method(self, node: ast.Call, func: ast.Attribute) -> Kind | None:
        """Return the kind of the result of a built-in method, or None for any other method."""
        given = [self.value(each) for each in node.args]
        kind = self.value(func.value)
        if kind == Kind("builtin", ("dict",)):
            right = func.attr == "fromkeys" and len(given) == 2 and not node.keywords
            right = right and is_within(given[0], many(NAME))
            return by_id(given[1]) if right else MIXED
        own = isinstance(func.value, ast.Name) and func.value.id in self.made
        if kind == HIDDEN and self.loose and (func.attr in LOOSE_METHODS or own):
            for option in node.keywords:
                self.value(option.value)
            return HIDDEN
        if kind.name == "record" and func.attr == "_replace":
            own = inspect.getattr_static(kind.of[0], "_replace", None)
            if isinstance(own, FunctionType) and of_model(own.__globals__["__name__"]):
                return None
            named = {option.arg: self.lasting(option.value) for option in node.keywords}
            return MIXED if given or None in named else self.replaced(node, kind, cast(Any, named))
        if kind.name == "by id" and func.attr == "get":
            right = given[:1] == [NAME] and len(given) < 3 and not node.keywords
            return join(*kind.of, *given[1:], NOTHING) if right else MIXED
        if kind.name == "by id" and func.attr in ("keys", "values", "items") and not given:
            both = {"keys": NAME, "values": kind.of[0], "items": row(NAME, kind.of[0])}
            return stream(both[func.attr]) if item_of(kind) == NAME else MIXED
        return None

    def sorted(self, call: ast.Call, of: ast.expr) -> Kind:
        """Return the kind of a sorted list. Its items, or their keys, must be numbers."""
        options = {option.arg: option.value for option in call.keywords}
        item = self.item(of)
        reverse = options.get("reverse")
        in_order = reverse is None or self.value(reverse) == TRUTH
        if not (in_order and options.keys() <= {"key", "reverse"}):
            raise self.refused(call)
        key, sort_by = item, options.get("key")
        if isinstance(sort_by, ast.Lambda):
            before, inner = dict(self.kinds), self.inner
            names = parameters(sort_by)
            if names is None:  # a default value would not be followed
                raise self.refused(call)
            self.kinds, self.inner = before | dict.fromkeys(names, item), inner | {*names}
            self.add(1)
            self.deepen(call, 1)
            key = self.value(sort_by.body)
            self.of.nested -= 1
            self.kinds, self.inner = before, inner
        elif sort_by is not None:
            self.add(1)
            key = self.apply(call, self.value(sort_by), [item], {})
        if not can_sort(key):
            raise self.refused(call)
        return many(item)
