"""The reference model of Spyre's scheduler, with the interface that all models share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..pool import blocks_for
from ..scenario import Request
from ..systems import Reference, ReferenceModel
from . import peak, scheduler, volumetric
from .config import SpyreConfig, check_pool, read_config
from .documented import DOCUMENTED
from .release_2_1_2 import RELEASE_2_1_2
from .release_2_5_2 import RELEASE_2_5_2
from .revision import Revision
from .sound import SOUND
from .state import Sequence, State

REVISIONS = {
    revision.name: revision for revision in (SOUND, DOCUMENTED, RELEASE_2_1_2, RELEASE_2_5_2)
}
OBSERVES = (
    "kind",
    "scheduled",
    "emitted",
    "tkv",
    "left_pad_blocks",
    "slot_blocks",
    "waiting",
    "running",
    "prefilling",
    "finished",
    "computed",
    "blocks",
)


@dataclass(frozen=True)
class SpyreModel(ReferenceModel[State]):
    """Spyre in one configuration of one revision."""

    config: SpyreConfig
    revision: Revision
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def options(self) -> dict[str, bool]:
        return {
            "paused": "paused" in self.revision.shows,
            "prefix_hit": self.config.prefix_caching,
            "reserved_blocks": "reserved_blocks" in self.revision.shows,
            "free_blocks": self.config.num_blocks is not None,
        }

    def refusal(self, request: Request) -> str | None:
        """Return why `request` can never run, or None if it can (ALL-R12). Releases also refuse
        some requests that can run (SPY-R62)."""
        longest = request.prompt_len + request.max_tokens - 1
        sentence = f"prompt + max_tokens - 1 = {longest} tokens"
        if longest > self.config.max_model_len:
            return f"{sentence} exceeds max_model_len ({self.config.max_model_len})"
        if longest > self.config.max_batch_tkv:
            return f"{sentence} exceeds max_batch_tkv ({self.config.max_batch_tkv})"
        needed = blocks_for(longest, self.config.block_size)
        if self.config.num_blocks is not None and needed > self.config.num_blocks:
            return f"{sentence} needs {needed} blocks, but the pool has {self.config.num_blocks}"
        return None

    def arrive(self, state: State, request: Request) -> State:
        return scheduler.arrive(state, Sequence.of(request))

    def abort(self, state: State, request_id: str) -> State:
        return scheduler.abort(self.config, self.revision, state, request_id)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """Make one decision and complete it (ALL-R07)."""
        return scheduler.step(self.config, self.revision, state, abort_inside)


def make_model(revision: str, config: Mapping[str, Any]) -> SpyreModel:
    read = read_config(config, revision)
    check_pool(read, revision)
    return SpyreModel(read, REVISIONS[revision])


def admitting_by(revision: Revision, name: str) -> Revision | None:
    """Return the revision with the volumetric check of this name in place of its own, or None if
    there is no such check."""
    if name in peak.CHECKS:
        return replace(revision, volume_check=peak.CHECKS[name])
    formula = volumetric.formula_named(name)
    if formula is None:
        return None
    return replace(revision, volume_check=volumetric.ByFormula(formula))


def with_formula(model: SpyreModel, name: str) -> SpyreModel | None:
    revision = admitting_by(model.revision, name)
    return None if revision is None else replace(model, revision=revision)


REFERENCE = Reference(
    *(read_config, make_model, with_formula),
    formulas=(*volumetric.FORMULAS, *peak.CHECKS, "FORMULA+TOKENS", "FILE.py:FUNCTION"),
)
