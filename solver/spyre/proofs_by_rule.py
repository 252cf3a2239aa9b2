"""How each rule beside the volumetric one (SPY-R07) is decided: what is proven, what is refuted."""

from ..smt.proof_result import RuleProof
from . import (
    chunk_proof,
    chunk_search,
    length_proof,
    length_search,
    pausing_proof,
    progress_proof,
    reservation_proof,
)

_LENGTH = RuleProof(
    "Does max_model_len need a constraint? Not in whole blocks, where the front door keeps it; "
    "and otherwise the constraint does not keep it.",
    length_proof.obligations,
    {
        "max_model_len is no multiple of the block: accepted, and beyond it": lambda: (
            length_search.beyond_length(length_search.Scale(max_model_len=32_770))
        ),
        "refused until the first has ended, though no tkv would be beyond": lambda: (
            length_search.needless(length_search.Scale())
        ),
        "an idle step by the tkv of a batch that has left (SPY-R35, 2.1.2)": lambda: (
            length_search.idle(length_search.Scale())
        ),
    },
)
_RESERVATION = RuleProof(
    "Are ever more blocks promised than are free? No.",
    reservation_proof.obligations,
    {
        "a request that fills the pool, never admitted (SPY-R38, model 2.5.2)": lambda: (
            reservation_proof.never_admitted(64, 512, 512)
        ),
    },
)
_PAUSING = RuleProof(
    "Can paused requests starve? Not by each other; by prefills that go before them.",
    pausing_proof.obligations,
    {
        "one-token requests go before a paused one (SPY-P01, SPY-R52, 2.5.2)": lambda: (
            pausing_proof.starving(pausing_proof.Scale(), members=5, passing=32)
        ),
    },
)
_CHUNKS = RuleProof(
    "Do the chunks of every prompt, behind any prefix hit, meet and end with it? Yes.",
    chunk_proof.obligations,
    {
        "a hit on blocks that were counted, not computed (ALL-R08, 2.1.2 and 2.5.2)": lambda: (
            chunk_search.hit_on_uncomputed(64, 8)
        ),
    },
)

_PROGRESS = RuleProof(
    "How long does the first in line wait, on revision sound, without prefix caching and with a "
    "pool that is not bounded? No longer than the work before it, at most the chunks of "
    "max_model_len and twice its tokens. On 2.5.2 it is passed by.",
    progress_proof.obligations,
    {
        "refused by the volume, and passed by (ALL-R05, 2.5.2, pausing off)": (
            progress_proof.passed_by
        ),
        "paused, and one-token requests go before it (SPY-R52, 2.5.2)": lambda: (
            pausing_proof.starving(pausing_proof.Scale(), members=5, passing=32)
        ),
    },
    block=64,
)

PROOFS: dict[str, RuleProof] = {
    "SPY-R41": _LENGTH,
    "SPY-R50": _RESERVATION,
    **dict.fromkeys(("SPY-R51", "SPY-P01"), _PAUSING),
    **dict.fromkeys(
        ("SPY-R04", "SPY-R14", "SPY-R18", "SPY-R19", "SPY-R54", "SPY-R55", "SPY-R58"), _CHUNKS
    ),
    "SPY-R53": _PROGRESS,
}
