"""The registry of systems. One descriptor defines a system; to add a system, register its
descriptor.

The parts of a descriptor belong to the layers above, which are slow to import (Hypothesis, Z3). A
part can therefore be a string instead of the object itself: "module:attribute" or "module". The
string is resolved on first use. Each layer reads its parts through a typed function, in
`model.systems`, `properties.history.bounds`, `properties.rules.registry`,
`properties.search.generators`, `solver.systems`, `gate.targets.scales`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol


class Readable(Protocol):
    """A text file, on disk or in a package: a `Path` or a `Traversable`."""

    def read_text(self, encoding: str) -> str: ...


@dataclass(frozen=True)
class System:
    """One system: a scheduler whose documented behaviour is modelled and checked.

    Attributes:
        name: its name in scenarios.
        title: its name for readers.
        revisions: the published behaviours that have a model or a rule; the first is the default.
        catalogue: the TOML file of its rules.
        model: `model.systems.Reference`.
        bounds: `properties.history.bounds.Bounds`, in steps.
        predicates: for each rule id, its `properties.rules.predicate.Predicate`.
        generators: `properties.search.generators.Generators`.
        scales: `gate.targets.scales.GateScales`, the configurations in which its targets are
            judged.
        features: `properties.history.features.Features`, what its runs add to the kernel's
            histories, or None.
        request_features: `properties.search.generators.RequestFeatures`, what its requests have
            besides a prompt, or None.
        explain: a function of rule id, scenario, step and version that explains why the rule was
            broken; None if the system has no explanations.
        projections: a function of scenario, version and steps that yields
            `properties.explanations.failure.Projected`; None if admission makes no projections.
        facts: a function of `properties.explanations.failure.Failure` that yields sentences about
            the system's own features; None if there are none.
        pads: whether the requests of a batch are padded to a common length, the tkv. Web pages then
            draw the padding, and batch x tkv.
        space: `solver.systems.SystemSpace`, its small scopes; None if it cannot be explored.
        proofs: for each proven rule id, its `solver.smt.obligation.RuleProof`; None if nothing is
            proven.
        contracts: for each name, the `solver.systems.Contract` that `check contracts` checks; None
            if there are none.
        questions: `gate.search.question.OwnQuestions`, the questions that `search` can decide in
            addition to those of `proofs`; or None.
        neutral: for each configuration key, a value without effect, for comparisons with systems
            that lack the key; None if there are none.
        releases: the `gate.targets.supported_releases.Package`s whose releases contain its
            scheduler, or None.
        checkout: `gate.targets.checkouts.Checkout`, a checkout of its scheduler in a user's folder,
            or None.
        schedulers: the names that its published schedulers report. Known divergences apply only to
            a target that reports one of them.
        decides_as: for each version that a target may report, the revision whose model makes the
            same decisions.
        runs_only: rules that no state of a model can break. The explorer leaves them out.
        builds_on: the other system whose parts it uses, if any.
        followed_by: for each revision, the step fields that a client needs to tell which tokens are
            computed.
    """

    name: str
    title: str
    revisions: tuple[str, ...]
    catalogue: Readable
    model: object
    bounds: object
    predicates: object
    generators: object
    scales: object
    space: object = None
    features: object = None
    request_features: object = None
    explain: object = None
    projections: object = None
    facts: object = None
    proofs: object = None
    contracts: object = None
    questions: object = None
    neutral: object = None
    releases: object = None
    checkout: object = None
    schedulers: tuple[str, ...] = ()
    decides_as: Mapping[str, str] = field(default_factory=dict)
    followed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    runs_only: frozenset[str] = frozenset()
    builds_on: str | None = None
    pads: bool = False


_registered: dict[str, System] = {}
SYSTEMS: Mapping[str, System] = MappingProxyType(_registered)


def register(system: System) -> None:
    """Make a system known. Raise ValueError if another system has its name."""
    if _registered.setdefault(system.name, system) is not system:
        raise ValueError(f"a system named {system.name!r} is registered already")


def unregister(name: str) -> None:
    """Remove a system from the registry. Tests that register a system need this."""
    del _registered[name]


class OwnRule(NamedTuple):
    """A user's own rule, added to every system: a `spec.catalogue.Rule` and its
    `properties.rules.predicate.Predicate`."""

    rule: Any
    predicate: Any


_own: dict[str, OwnRule] = {}
OWN_RULES: Mapping[str, OwnRule] = MappingProxyType(_own)


def add_rules(rules: Sequence[OwnRule]) -> None:
    _own.update({rule.rule.id: rule for rule in rules})


def remove_rules() -> None:
    _own.clear()


def first_system() -> str:
    """Return the default system: the first registered one."""
    return next(iter(_registered))


def part(system: str, name: str) -> Any:
    """Return a part of the system's descriptor. Import the part if the descriptor gives it as a
    string.

    Raise KeyError if no such system is registered.
    """
    value = getattr(_registered[system], name)
    return _imported(value) if isinstance(value, str) else value


@cache
def _imported(place: str) -> Any:
    module, colon, attribute = place.partition(":")
    imported = import_module(module)
    return getattr(imported, attribute) if colon else imported
