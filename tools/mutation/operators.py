"""Mutants of the models, made by the operators of cosmic-ray."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from schedproof.tests.mutants.faults import MODEL

# Operators that are left out: those that make no sense for lengths, those for `|` in annotations
# and for `is`, and the one for `except`, which does not support dotted names.
LEFT_OUT = re.compile(
    r"BinaryOperator_.*(Pow|Shift|Bit|_Div)|ComparisonOperator_(Eq|NotEq|Lt|LtE|Gt|GtE)_Is"
    r"|Variable|ExceptionReplacer"
)


class Change(NamedTuple):
    """A change to the code, in the form that identifies it in the list of survivors.

    It consists of the file's path within `model`, the enclosing definition (or a description of the
    change), and the line before and after the change.
    """

    file: str
    place: str
    before: str
    after: str


class Mutant(NamedTuple):
    """A changed model. `texts` maps the path of each changed file within `model` to its new text.

    If no known rule catches the change, either `is_open` says why no rule has to, or `hole` says
    why the rules miss it.
    """

    change: Change
    line: int
    texts: Mapping[str, str]
    is_open: str = ""
    hole: str = ""


def places_of(source: str) -> Iterator[tuple[str, int, Any]]:
    """Yield every place at which an operator changes the source: the operator, the number of the
    place among those of this operator, and the node."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast(source)
    for name in sorted(name for name in operator_names() if not LEFT_OUT.search(name)):
        operator = get_operator(name)()
        nodes = (node for node in ast_nodes(tree) for _ in operator.mutation_positions(node))
        for number, node in enumerate(nodes):
            yield name, number, node


def changed(source: str, operator: str, number: int) -> str | None:
    """Return the source, changed by an operator at one of its places. Return None if nothing
    changes or the result does not compile: the operators take a `*` between parameters for a
    multiplication."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text: str | None = mutate_code(source, get_operator(operator)(), number)
    if text is None or text == source:
        return None
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return None
    return text


def first_difference(source: str, text: str) -> tuple[int, str, str]:
    """Return the number of the first line that differs, and the line in both texts."""
    pairs = zip(source.splitlines(), text.splitlines(), strict=False)
    line, (old, new) = next(pair for pair in enumerate(pairs, 1) if len({*pair[1]}) == 2)
    return line, old.strip(), new.strip()


def mutants_of(file: str) -> Iterator[Mutant]:
    """Yield every mutant of a file of `model` once. The order is always the same."""
    source = (MODEL / file).read_text(encoding="utf-8")
    seen = set[str]()
    for operator, number, node in places_of(source):
        text = changed(source, operator, number)
        if text is not None and text not in seen:
            seen.add(text)
            line, old, new = first_difference(source, text)
            yield Mutant(Change(file, _place_of(node), old, new), line, {file: text})


def _place_of(node: Any) -> str:
    """Return the definition that encloses a node, as `Class.function`."""
    names: list[str] = []
    while node:
        if node.type in ("classdef", "funcdef"):
            names.insert(0, node.name.value)
        node = node.parent
    return ".".join(names)
