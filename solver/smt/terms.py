"""Terms of Z3 that are built once.

Many paths of a function start alike, and build the same terms again. Z3's Python interface takes
far longer to build a term than Z3 itself, so `Terms` keeps those that it has built.
"""

from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any

import z3

integer = cache(z3.Int)
boolean = cache(z3.Bool)


class Terms:
    """The terms of one problem, by operator and operands.

    Z3 has one node per term, whose address identifies it. The operands are kept alive together with
    the result, because Z3 reuses the addresses of terms that no longer exist.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, Any, Any], tuple[Any, Any, Any]] = {}
        self._negated: dict[int, tuple[Any, Any]] = {}

    def made(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """Return `operation(left, right)`, where an operand is a term or a value of Python."""
        try:
            key = (operation, _identity(left), _identity(right))
        except AttributeError:
            return operation(left, right)
        if (known := self._made.get(key)) is None:
            known = self._made[key] = operation(left, right), left, right
        return known[0]

    def negated(self, condition: Any) -> Any:
        key = address(condition)
        if (known := self._negated.get(key)) is None:
            known = self._negated[key] = z3.Not(condition), condition
        return known[0]


def address(term: Any) -> int:
    """Return the address of the term's node, which is the same for equal terms."""
    return int(term.ast.value)


def _identity(operand: Any) -> Any:
    # A tuple, so that no number is taken for an address.
    return (operand,) if type(operand) is int else operand.ast.value


def all_of(*conditions: Any) -> Any:
    """Return the conjunction of terms and bools, or of a list of them, as `z3.And` does."""
    return _joined(z3.Z3_mk_and, conditions)


def any_of(*conditions: Any) -> Any:
    """Return the disjunction of terms and bools, or of a list of them, as `z3.Or` does."""
    return _joined(z3.Z3_mk_or, conditions)


def implies(premise: Any, conclusion: Any) -> Any:
    """Return the implication of terms and bools, as `z3.Implies` does."""
    context = z3.main_ctx()
    terms = _term(premise).ast, _term(conclusion).ast
    return z3.BoolRef(z3.Z3_mk_implies(context.ref(), *terms), context)


def decision_tree(cases: list[tuple[list[Any], Any]]) -> Any:
    """Return whether all conditions of some case hold, and its fact as well.

    Consecutive cases that begin with the same conditions share these, as the paths of code do. So
    the term is far smaller than a disjunction of the cases, and solvers read it much faster.
    """
    return _decided(cases, 0) if cases else _constant(False)


def _decided(cases: list[tuple[list[Any], Any]], at: int) -> Any:
    """Return the tree of the cases, without the first `at` conditions, which they share."""
    first, begin = cases[0][0], at
    while len(first) > at and all(
        len(each) > at and address(each[at]) == address(first[at]) for each, _ in cases
    ):
        at += 1
    if len(cases) == 1:
        return all_of([*first[begin:], cases[0][1]])
    branches = groupby(cases, lambda case: address(case[0][at]) if len(case[0]) > at else None)
    found = [[*each] for _, each in branches]
    if len(found) == 1:  # the conditions of all cases end here
        return all_of([*first[begin:], any_of([fact for _, fact in cases])])
    return all_of([*first[begin:at], any_of([_decided(each, at) for each in found])])


def _joined(make: Callable[..., Any], conditions: tuple[Any, ...]) -> Any:
    given = conditions[0] if len(conditions) == 1 and type(conditions[0]) is list else conditions
    terms = [_term(condition) for condition in given]
    context = z3.main_ctx()
    nodes = (z3.Ast * len(terms))(*(term.ast for term in terms))
    return z3.BoolRef(make(context.ref(), len(terms), nodes), context)


@cache
def _constant(value: bool) -> Any:
    return z3.BoolVal(value)


def _term(condition: Any) -> Any:
    if isinstance(condition, z3.BoolRef):
        return condition
    if isinstance(condition, bool):
        return _constant(condition)
    if isinstance(term := getattr(condition, "of", None), z3.BoolRef):  # of an `execution.Truth`
        return term
    raise TypeError(f"{type(condition).__name__} is neither a condition nor a bool")
