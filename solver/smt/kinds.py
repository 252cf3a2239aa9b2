"""The kinds of values for which code does the same on symbols as on numbers, and the operations
that are defined for each kind.

Everything else is undefined, for example dividing a number by another with `/`, or comparing two
lists.
"""

import ast
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType, ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec

from .execution import UndecidedError
from .memory import PACKAGE


@dataclass(frozen=True)
class Kind:
    """The known facts about a value. `of` contains the kinds of its parts."""

    name: str
    of: tuple[Any, ...] = ()


NUMBER, TRUTH, NAME = Kind("number"), Kind("truth"), Kind("id")
TEXT = Kind("text")  # a text in the code, which says nothing of a request
MESSAGE = Kind("message")  # a text that may contain numbers; code may only pass it on
HIDDEN = Kind("hidden")  # has no symbol; code may only pass it on
NOTHING, EMPTY = Kind("None"), Kind("no item")
MIXED = Kind("mixed")  # of different kinds; code must not use it
PLAIN = (NUMBER, TRUTH, NAME, TEXT, MESSAGE, NOTHING)  # nothing can change these values


# Further operations that code may use if the proof replaces it. Such code may look at everything.
LOOSE: tuple[type[ast.AST], ...] = (
    *(ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp),
    *(ast.Attribute, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred),
)
LOOSE_BUILTINS = {"range", "sum", "enumerate", "set", "dict", "tuple", "list", "len", "min"}
LOOSE_BUILTINS |= {"reversed", "max", "any", "all", "zip", "next", "abs", "divmod", "bool"}
# Functions that make a list of as many items as they are given.
LISTING = {"zip", "list", "tuple", "reversed", "enumerate", "set", "frozenset", "dict"}
KEYED = {"sorted", "max", "min"}
LOOSE_METHODS = {"get", "items", "_replace", "name"}


def many(item: Kind) -> Kind:
    """Return the kind of a list or tuple of any length."""
    return Kind("many", (item,))


def row(*items: Kind) -> Kind:
    """Return the kind of a tuple of these items."""
    return Kind("row", items)


def stream(item: Kind) -> Kind:
    """Return the kind of items that code can iterate over only once, at the place where they are
    made."""
    return Kind("stream", (item,))


def place(lists: tuple[str, ...] = ()) -> Kind:
    """Return the kind of a place in a list. `lists` are the names that the code has for this list.
    Code may only take the item at this place, or count the items that are still to come."""
    return Kind("place", lists)


def place_in(items: ast.expr) -> Kind:
    texts = [ast.unparse(items)]
    if isinstance(items, ast.Call) and ast.unparse(items.func) in ("sorted", "reversed"):
        texts += map(ast.unparse, items.args[:1])
    return place(tuple(texts))


def by_id(value: Kind) -> Kind:
    """Return the kind of a dict whose keys are ids. If the value is NOTHING, return the kind of a
    set of ids."""
    return Kind("by id", (value,))


def record(of: type) -> Kind:
    return Kind("record", (of,))


class Known:
    """An object that the code refers to. It is equal only to itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def known(value: Any) -> Kind:
    return Kind("known", (Known(value),))


def join(*kinds: Kind) -> Kind:
    """Return the kind of a value that is of one of these kinds, or MIXED if there is no such kind.

    A value of any kind may be None: if the code expects something else, Python raises an error, and
    no code catches it.
    """
    joined = EMPTY
    for kind in kinds:
        joined = _join(joined, kind)
    return joined


def _join(kind: Kind, other: Kind) -> Kind:
    if kind == other or other in (EMPTY, NOTHING):
        return other if kind == EMPTY else kind
    if kind in (EMPTY, NOTHING):
        return other
    names = {kind.name, other.name}
    if names == {"row"} and len(kind.of) == len(other.of):
        return row(*map(_join, kind.of, other.of))
    if names == {"place"}:
        return place()
    if names <= {"row", "many"}:
        if any(each.name == "row" and len(each.of) > 1 for each in (kind, other)):
            return MIXED  # code could use the known length to count the items of another list
        return many(join(*kind.of, *other.of))
    if names == {"by id"}:
        if NOTHING in (*kind.of, *other.of) and EMPTY not in (*kind.of, *other.of):
            return MIXED  # a set has no order, and a dict has one
        return by_id(join(*kind.of, *other.of))
    return MESSAGE if {kind, other} == {TEXT, MESSAGE} else MIXED


def is_within(kind: Kind, due: Kind) -> bool:
    """Return whether a value of this kind is also a value of the expected kind."""
    return join(due, kind) == due and MIXED not in (kind, *kind.of)


def item_of(kind: Kind) -> Kind:
    """Return the kind of the items of a list or a tuple, or of the keys of a dict, which are ids.
    Return MIXED for anything else, such as a set, which has no order."""
    if kind.name == "by id" and kind.of[0] != NOTHING:
        return NAME
    return join(*kind.of) if kind.name in ("many", "row", "stream") else MIXED


def is_condition(kind: Kind) -> bool:
    return kind.name in ("many", "row", "by id", "number", "truth", "record")


ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def can_compare(operator: ast.cmpop, left: Kind, right: Kind) -> bool:
    match operator:
        case ast.Is() | ast.IsNot():
            return right == NOTHING
        case ast.Eq() | ast.NotEq():
            return left == right and left in (NUMBER, TRUTH, NAME, TEXT)
        case ast.In() | ast.NotIn() if left == NAME:
            return right.name == "by id" or right == many(NAME)
        case ast.In() | ast.NotIn():
            return left in (TEXT, NUMBER) and right.name == "row" and {*right.of} <= {left}
    return isinstance(operator, ORDER) and left == right == NUMBER


def result_of(operator: ast.operator, left: Kind, right: Kind) -> Kind:
    """Return the kind of a sum, a product and so on, or MIXED if it is not defined."""
    arithmetic = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod
    if left == right == NUMBER and isinstance(operator, arithmetic):
        return NUMBER
    if {left, right} == {NUMBER, TRUTH} and isinstance(operator, ast.Add | ast.Sub | ast.Mult):
        return NUMBER  # True counts as 1
    if isinstance(operator, ast.Add) and {left.name, right.name} <= {"many", "row"}:
        return many(join(*left.of, *right.of))
    return MIXED


def items_added(left: Kind, right: Kind) -> int:
    """Return by how many items a sum may shift a list: the items of the tuples in the sum, and one
    more, because a list that is added to itself contains each item twice."""
    rows = [kind for kind in (left, right) if kind.name == "row"]
    return sum(len(kind.of) for kind in rows) + (bool(rows) or left.name == "many")


def item_at(kind: Kind, place: str, of: Kind) -> Kind:
    """Return the kind of an item. `place` is its index as the code writes it, and `of` is the kind
    of that index. A constant index of a list must be 0 or -1."""
    if kind.name == "by id" and of == NAME:
        return cast(Kind, kind.of[0])
    if kind.name == "many" and of.name == "place":
        return cast(Kind, kind.of[0])
    if kind.name in ("many", "row") and place in ("0", "-1") and kind.of:
        return cast(Kind, kind.of[int(place)])
    if kind.name == "row" and place.isdigit() and int(place) < len(kind.of):
        return cast(Kind, kind.of[int(place)])
    return MIXED


def result_of_builtin(name: str, given: Sequence[Kind]) -> Kind:
    """Return the kind of the result of a built-in function, or MIXED if it is not defined. With
    symbols, `len`, `max`, `min` and `sorted` are replaced (`on_symbols`)."""
    if name == "zip" and given:
        items = [item_of(kind) for kind in given]
        return MIXED if MIXED in items else stream(row(*items))
    if name in ("max", "min") and {*given} == {NUMBER} and given[1:]:
        return NUMBER
    if name == "next" and len(given) == 2 and given[0].name == "stream":
        return join(*given[0].of, given[1])
    if name == "isinstance" and len(given) == 2 and given[0].name == "record":
        return TRUTH if given[1] == known(*given[0].of) else MIXED
    if name == "divmod" and [*given] == [NUMBER, NUMBER]:
        return row(NUMBER, NUMBER)
    if len(given) != 1:
        return MIXED
    kind, item = given[0], item_of(given[0])
    match name:
        case "abs" if kind == NUMBER:
            return NUMBER
        case "bool" if is_condition(kind):
            return TRUTH
        case "len" if kind.name in ("many", "row", "by id"):
            return NUMBER
        case "max" | "min" if item == NUMBER:
            return NUMBER
        case "all" | "any" if item == TRUTH:
            return TRUTH
        case "tuple" | "list" if item != MIXED:
            return many(item)
        case "reversed" if kind.name == "many":
            return stream(item)
        case "enumerate" if item != MIXED:
            return stream(row(place(), item))
        case "set" | "frozenset" if item == NAME:
            return by_id(NOTHING)
        case "dict" if item.name == "row" and len(item.of) == 2 and item.of[0] == NAME:
            return by_id(item.of[1])
    return MIXED


def can_sort(key: Kind) -> bool:
    return key == NUMBER or (key.name == "row" and {*key.of} == {NUMBER})


def of_model(module: str) -> bool:
    return module.startswith(f"{PACKAGE}.")


def annotated(hint: Any) -> Kind:
    """Return the kind of a field with this annotation, or MIXED if code must not read the field."""
    if hint in (plain := {int: NUMBER, bool: TRUTH, str: NAME, NoneType: NOTHING}):
        return plain[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return TEXT if all(isinstance(part, str) for part in parts) else MIXED
    kinds = [annotated(part) for part in parts if part is not ...]
    if MIXED not in kinds and kinds:
        if origin in (Union, UnionType):
            return join(*kinds)
        if origin is list or (origin is tuple and ... in parts):
            return many(kinds[0])
        if origin is tuple:
            return row(*kinds)
        if origin is dict and kinds[0] == NAME:
            return by_id(kinds[1])
    return record(hint) if is_record(hint) else MIXED


def is_record(of: Any) -> bool:
    if not isinstance(of, type) or not of_model(of.__module__):
        return False
    return issubclass(of, (msgspec.Struct, tuple)) or hasattr(of, "__dataclass_fields__")


def kind_of(value: Any) -> Kind:
    """Return the kind of a constant object. Return MIXED if code could use the object to tell
    symbols apart or to remember something."""
    plain = {bool: TRUTH, int: NUMBER, str: TEXT, NoneType: NOTHING}
    if type(value) in plain:
        return plain[type(value)]
    if type(value) is tuple:
        items = [kind_of(item) for item in value]
        return MIXED if MIXED in items else row(*items)
    replaces = (partial, msgspec.structs.replace, dataclasses.replace)
    if isinstance(value, FunctionType | ModuleType) or value in replaces:
        return known(value)
    of = value if isinstance(value, type) else type(value)
    frozen = getattr(getattr(of, "__dataclass_params__", None), "frozen", False)
    if of_model(of.__module__) and (isinstance(value, type) or frozen):
        return known(value)
    return MIXED


# The special attributes that Python (up to 3.14), `copyreg`, `dataclass`, `NamedTuple` and msgspec
# give to a class.
MADE = {
    *("abstractmethods", "annotate_func", "annotations", "annotations_cache", "dataclass_fields"),
    *("dataclass_params", "delattr", "dict", "doc", "eq", "firstlineno", "getnewargs", "getstate"),
    *("hash", "init", "match_args", "module", "new", "orig_bases", "parameters", "replace"),
    *("setattr", "setstate", "slotnames", "slots", "static_attributes", "struct_config"),
    *("struct_defaults", "struct_encode_fields", "struct_fields", "type_params", "weakref"),
}


@cache
def check_class(of: type) -> None:
    """Refuse a class of records that has a method which Python calls implicitly.

    Raises: UndecidedError: the class has such a method.
    """
    for each in of.__mro__:
        if of_model(each.__module__):
            for name, found in vars(each).items():
                is_function = isinstance(found, FunctionType) and of_model(
                    found.__globals__["__name__"]
                )
                written = is_function and found.__code__.co_filename[:1] != "<"
                special = name.startswith("__") and name not in ("__call__", "__repr__")
                if special and (written or name.strip("_") not in MADE):
                    raise UndecidedError(
                        f"does something that the proof does not define: {each}.{name}"
                    )


def shows(assumed: Kind, kind: Kind) -> bool:
    """Return whether a result contains the records that the proof assumes it contains."""
    if assumed.name != "row":
        return assumed.name != "record" or kind == assumed
    return kind.name == "row" and all(map(shows, assumed.of, kind.of))


def parameters_of(
    function: FunctionType, given: tuple[Kind, ...], named: Mapping[str, Kind]
) -> dict[str, Kind]:
    signature, kinds = inspect.signature(function), dict[str, Kind]()
    bound = signature.bind(*given, **named).arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            kinds[name] = Kind("options", tuple(bound.get(name, {}).items()))
        else:
            kinds[name] = bound[name] if name in bound else kind_of(parameter.default)
    return kinds
