"""What the published revisions of Spyre's scheduler do differently: one value each."""

from dataclasses import dataclass

from . import volumetric


@dataclass(frozen=True)
class Revision:
    """The choices in which revisions differ.

    Attributes:
        name: as in the scenario format.
        projection: the formula of the volumetric check.
        stale_tkv: admission goes by the tkv that the last forward reported, which still counts
            requests that have finished since; otherwise by the batch as it is.
        checks_once: without interleaving, every constraint is checked at the first chunk and
            never again (rule SPY-R34); otherwise at the chunk that the document names.
        whole_first_chunk: the first chunk is given blocks for a whole chunk, left padding
            included (released blocks are then ahead of the tokens computed).
        reserves_blocks: a bounded pool admits only what it can hold to the end.
    """

    name: str
    projection: volumetric.Formula
    stale_tkv: bool = False
    checks_once: bool = False
    whole_first_chunk: bool = False
    reserves_blocks: bool = True


SOUND = Revision("sound", volumetric.common_base)
DOCUMENTED = Revision("documented", volumetric.document_realigned)
RELEASE_2_1_2 = Revision(
    "2.1.2",
    volumetric.release_2_1_2,
    stale_tkv=True,
    checks_once=True,
    whole_first_chunk=True,
    reserves_blocks=False,
)
REVISIONS = {revision.name: revision for revision in (SOUND, DOCUMENTED, RELEASE_2_1_2)}
