"""How rules of vLLM's scheduler are decided: what is proven, what is refuted."""

from functools import partial

from ..smt.obligation import Obligation, RuleProof
from . import admission_lemmas, budget_lemmas, progress_lemmas
from .anomalies import KNOBS, Knob, anomaly

TURNED: dict[Knob, str] = {
    "max_num_seqs": "max_num_seqs lowered by one",
    "max_num_batched_tokens": "max_num_batched_tokens lowered by one",
    "watermark": "the watermark raised by one block",
}
# What is true of knobs and preemption.
NEVER_PREEMPTED = (
    "more_blocks_are_one_block_more",
    "holdings_never_exceed_front_door",
    "lone_running_request_can_grow",
    "full_pool_never_runs_out",
)


def never_preempted(block: int | None = None) -> list[Obligation]:
    """When no request is preempted, whatever the requests: one slot, or room for all."""
    return [one for one in admission_lemmas.obligations(block) if one.name in NEVER_PREEMPTED]


_BUDGET = RuleProof(
    "Can a step compute more than its budget, or a request less or more than its share? No.",
    budget_lemmas.obligations,
)
_ADMISSION = RuleProof(
    "Is a request admitted that could not finish alone, or one kept out that could? No.",
    admission_lemmas.obligations,
)
_PROGRESS = RuleProof(
    "Can requests that the front door lets in block each other for ever? No; first come, first "
    "served a request waits for no more than (requests before it) x max_model_len steps.",
    progress_lemmas.obligations,
)
_KNOBS = RuleProof(
    "Does a knob against preemption never lead to more of it? It may, each of the three; with one "
    "slot, or room for all, no request is preempted.",
    never_preempted,
    {f"{TURNED[knob]}: more preemptions": partial(anomaly, knob) for knob in KNOBS},
)

PROOFS: dict[str, RuleProof] = {
    **dict.fromkeys(
        ("V1-I2", "V1-I3", "V1-R02", "V1-R04", "V1-R11", "V1CP-R02", "V1CP-R07", "V1CP-R28"),
        _BUDGET,
    ),
    **dict.fromkeys(("V1CP-R19", "V1CP-R20", "V1CP-R22"), _ADMISSION),
    **dict.fromkeys(("V1CP-R12", "V1CP-R15"), _PROGRESS),
    "V1CP-R32": _KNOBS,
}
