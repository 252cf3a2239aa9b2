"""What the published revisions of Spyre's scheduler do differently: one value each."""

from dataclasses import dataclass, replace

from . import peak, volumetric


@dataclass(frozen=True)
class Revision:
    """The choices in which revisions differ.

    Attributes:
        name: as in the scenario format.
        projection: the formula of the volumetric check.
        volume_check: asked instead, by a check that projects nothing (no release has it).
        stale_tkv: admission goes by the tkv that the last forward reported, which still counts
            requests that have finished since; otherwise by the batch as it is.
        prompt_is_tkv: every prefill step reports the prompt's length as tkv.
        checks_once: without interleaving, every constraint is checked at the first chunk and
            never again (rule SPY-R34); otherwise at the chunk that the document names.
        keeps_model_length: the max-model-length constraint (rule SPY-R41).
        counts_ahead: after a hit that does not end with a chunk, the tokens computed are counted
            (and blocks allocated and published) from the hit, a whole chunk on.
        whole_first_chunk: the first chunk is given blocks for a whole chunk, left padding
            included (released and published blocks are then ahead of the tokens computed).
        reserves_blocks: a bounded pool admits only what it can hold to the end.
        reserves_last_token: blocks are promised for the last token, too, which is never computed.
        leaks_reservations: what was promised to a request that is aborted between two steps stays
            promised for ever.
        nameless_first: freed blocks that hold nothing to be found are handed out first.
        pauses: decoding requests are paused while the batch is too large for the limit
            (SPY-R51); nothing prefills meanwhile (SPY-R52).
        forgets_paused: with no request running, a prefill starts although requests are paused.
        skips_refused: a waiting request that is refused for a reason of its own does not stop
            those behind it (SPY-R53).
    """

    name: str
    projection: volumetric.Formula
    volume_check: volumetric.Check | None = None
    stale_tkv: bool = False
    prompt_is_tkv: bool = False
    checks_once: bool = False
    keeps_model_length: bool = True
    counts_ahead: bool = False
    whole_first_chunk: bool = False
    reserves_blocks: bool = True
    reserves_last_token: bool = False
    leaks_reservations: bool = False
    nameless_first: bool = True
    pauses: bool = False
    forgets_paused: bool = False
    skips_refused: bool = False


SOUND = Revision("sound", volumetric.common_base)
DOCUMENTED = Revision("documented", volumetric.document_realigned)
RELEASE_2_1_2 = Revision(
    "2.1.2",
    volumetric.release_2_1_2,
    stale_tkv=True,
    checks_once=True,
    counts_ahead=True,
    whole_first_chunk=True,
    reserves_blocks=False,
    nameless_first=False,
)
RELEASE_2_5_2 = Revision(
    "2.5.2",
    volumetric.release_2_1_2,
    stale_tkv=True,
    prompt_is_tkv=True,
    checks_once=True,
    keeps_model_length=False,
    counts_ahead=True,
    reserves_last_token=True,
    leaks_reservations=True,
    pauses=True,
    forgets_paused=True,
    skips_refused=True,
)
REVISIONS = {
    revision.name: revision for revision in (SOUND, DOCUMENTED, RELEASE_2_1_2, RELEASE_2_5_2)
}
# Releases that were compared step by step with the model of another.
DECIDES_AS = {"2.1.1": "2.1.2", "2.4.0": "2.5.2", "2.6.3": "2.5.2"}


def admitting_by(revision: Revision, name: str) -> Revision | None:
    """The revision with another volumetric check: a formula, FORMULA+TOKENS, `exact` or
    `rounded`; None if there is none of that name."""
    formula = volumetric.formula_named(name)
    if formula is not None:
        return replace(revision, projection=formula)
    if name in peak.CHECKS:
        return replace(revision, volume_check=peak.CHECKS[name])
    return None
