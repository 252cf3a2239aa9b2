"""The scopes in which every fault planted in Spyre must show: a few seconds each, the cheapest
first."""

from schedproof.solver.spyre.space import SCOPES, Scope


def named(name: str) -> Scope:
    return next(scope for scope in SCOPES if scope.name == name)
