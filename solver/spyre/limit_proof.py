"""What has to be shown so that no request joins that can exceed the limit (SPY-R47), or that no
decode step exceeds it (SPY-R07): the lemmas of one revision in one configuration.

The second follows from the first by induction over admissions (`volumetric_proof`, 6). Releases
that pause requests keep the second in another way, whatever joins (`pausing_code`).
"""

from typing import NamedTuple

from ...model.spyre import documented
from ...model.spyre.model import REVISIONS
from ...model.spyre.peak import CHECKS
from ..obligation import Obligation
from . import pausing_code, peak_proof, remembered_proof, volumetric_proof
from .symbols import lengths_of
from .volumetric import Setting

ANY_NUMBER_64 = "any number of requests (blocks of 64)"
FEW = "run with few requests (blocks of 64)"


class Group(NamedTuple):
    """Lemmas, and what they are about in a few words."""

    title: str
    lemmas: list[Obligation]


def groups(rule: str, setting: Setting, block: int | None) -> list[Group]:
    """Everything that has to be shown of `rule`; `block`: tokens of a block, None for any."""
    revision = REVISIONS[setting.revision]
    pauses = "paused" in revision.shows
    if pauses and rule == "SPY-R07":
        title = f"the loop that settles which requests decode, {FEW}"
        return [
            Group(ANY_NUMBER_64, pausing_code.any_number()),
            Group(title, pausing_code.few()),
        ]
    code: list[Obligation] = []
    if setting.formula in CHECKS:
        code = peak_proof.code(setting.formula)
        lemmas = peak_proof.obligations(setting.formula, block)
        loops = peak_proof.loops(setting.formula)
    else:
        lemmas = volumetric_proof.obligations(setting.formula, block)
        loops = volumetric_proof.loops()
        if revision.current_tkv is documented.current_tkv:
            lemmas = [volumetric_proof.length_within_tkv(lengths_of(block)), *lemmas]
    scheduler = remembered_proof.obligations(revision, interleave=setting.interleave)
    if pauses:
        scheduler.append(pausing_code.no_pause())
    return [
        Group("any number of requests", lemmas),
        *([Group(ANY_NUMBER_64, code)] if code else []),
        Group("the scheduler's code, in any state (blocks of 64, chunks of 512)", scheduler),
        Group(f"the loops around it, {FEW}", loops),
    ]
