"""The small scopes: `schedproof explore` visits every state that they have.

A model whose states are hashable is explored by `PlainModels`. Choose the smallest sizes at which
each limit can bind: two requests, for one slot and for two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from schedproof.solver.exploration.models import PlainModels
from schedproof.solver.exploration.scope import Scope, lengths
from schedproof.solver.systems import SystemSpace


@dataclass(frozen=True)
class ToyScope(Scope):
    """A scope of the toy scheduler; its limits are those of max_num_seqs."""

    system: ClassVar[str] = "toy"
    smallest: ClassVar[Mapping[str, Any]] = {}


def models(
    revision: str, config: Mapping[str, Any], limits: Sequence[int], formula: str | None
) -> PlainModels:
    """Return the models of a configuration, one for each number of slots."""
    return PlainModels("toy", "max_num_seqs", revision, config, limits)


SCOPES = (
    ToyScope("pairs", "two requests", 2, tuple(lengths((1, 2), (1, 2))), (1, 2)),
    ToyScope("aborts", "clients that give up", 2, tuple(lengths((1,), (2,))), (1, 2), "alone"),
)
SPACE = SystemSpace(SCOPES, "max_num_seqs", "slot", models)
