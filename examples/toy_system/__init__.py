"""The template for a new system: the smallest scheduler that has everything a system needs.

First come, first served, one prompt per step. The folders are those of schedproof itself, one for
each layer, so a copy of them into the root of the repository is a system that only has to be
registered. Read them in this order; `docs/guides/new-system.md` goes through them step by step:

    spec/toy.toml                   the rules: what the document says
    model/toy/                      the scheduler that the document describes
    properties/toy/predicates.py    does a step break a rule, and was the rule exercised?
    properties/toy/strategies.py    configurations and requests that are likely to break one
    properties/toy/bounds.py        how many steps a request may take
    solver/toy/space.py             the small scopes that `schedproof explore` covers completely
    gate/targets/toy/scales.py      the configurations that targets are judged in
    tests/mutants/toy.toml          a planted fault for each rule

`TOY` below is the descriptor, which names these parts. In the repository, `systems.py` builds it.
"""

from importlib import resources

from schedproof.spec.systems import System

# A part is "module:attribute", imported when it is first used.
TOY = System(
    name="toy",
    title="Toy",
    revisions=("documented",),
    catalogue=resources.files(__name__) / "spec/toy.toml",
    model=f"{__name__}.model.toy.model:REFERENCE",
    predicates=f"{__name__}.properties.toy.predicates:PREDICATES",
    generators=f"{__name__}.properties.toy.strategies",
    bounds=f"{__name__}.properties.toy.bounds:BOUNDS",
    space=f"{__name__}.solver.toy.space:SPACE",
    scales=f"{__name__}.gate.targets.toy.scales:SCALES",
)
