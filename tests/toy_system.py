"""The template for a new system (`examples/toy_system`), with a second revision that is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from schedproof.examples.toy_system import TOY
from schedproof.examples.toy_system.model.toy.config import ToyConfig, read_config
from schedproof.examples.toy_system.model.toy.model import ToyModel
from schedproof.examples.toy_system.solver.toy.space import SCOPES
from schedproof.model.systems import Reference

REVISIONS = ("documented", "one too many")
__all__ = ["REVISIONS", "SCOPES", "TOY", "TOY_SYSTEM"]


@dataclass(frozen=True)
class OneTooMany(ToyModel):
    """Admits a request more than it has slots for."""

    def decide(self, state: Any) -> Any:
        slots = ToyConfig(max_num_seqs=self.config.max_num_seqs + 1)
        return ToyModel(slots).decide(state)


def make_model(revision: str, config: Mapping[str, Any]) -> ToyModel:
    model = OneTooMany if revision == "one too many" else ToyModel
    return model(read_config(config, revision))


TOY_SYSTEM = replace(TOY, revisions=REVISIONS, model=Reference(read_config, make_model))
