"""How rules of vLLM's scheduler are decided: what is proven, what is refuted."""

from functools import partial

from ..decided import Decided
from ..obligation import Obligation
from . import admission_proof, budget_proof, progress_proof
from .anomalies import KNOBS, Knob, anomaly

TURNED: dict[Knob, str] = {
    "max_num_seqs": "max_num_seqs lowered by one",
    "max_num_batched_tokens": "max_num_batched_tokens lowered by one",
    "watermark": "the watermark raised by one block",
}
# What is true of knobs and preemption.
NEVER_PREEMPTED = ("more_blocks", "never_beyond_the_door", "grows_alone", "room_for_all")


def never_preempted(block: int | None = None) -> list[Obligation]:
    """When no request is preempted, whatever the requests: one slot, or room for all."""
    return [one for one in admission_proof.obligations(block) if one.name in NEVER_PREEMPTED]


_BUDGET = Decided(
    "Can a step compute more than its budget, or a request less or more than its share? No.",
    budget_proof.obligations,
)
_ADMISSION = Decided(
    "Is a request admitted that could not finish alone, or one kept out that could? No.",
    admission_proof.obligations,
)
_PROGRESS = Decided(
    "Can requests that the front door lets in block each other for ever? No; first come, first "
    "served a request waits for no more than (requests before it) x max_model_len steps.",
    progress_proof.obligations,
)
_KNOBS = Decided(
    "Does a knob against preemption never lead to more of it? It may, each of the three; with one "
    "slot, or room for all, no request is preempted.",
    never_preempted,
    {f"{TURNED[knob]}: more preemptions": partial(anomaly, knob) for knob in KNOBS},
)

DECIDED: dict[str, Decided] = {
    **dict.fromkeys(
        ("V1-I2", "V1-I3", "V1-R02", "V1-R04", "V1-R11", "V1CP-R02", "V1CP-R07", "V1CP-R28"),
        _BUDGET,
    ),
    **dict.fromkeys(("V1CP-R19", "V1CP-R20", "V1CP-R22"), _ADMISSION),
    **dict.fromkeys(("V1CP-R12", "V1CP-R15"), _PROGRESS),
    "V1CP-R32": _KNOBS,
}
