"""The proofs and counterexamples for each of vLLM's rules."""

from functools import partial

from ..smt.obligation import Obligation, RuleProof, combine
from . import admission_lemmas, budget_lemmas, code_lemmas, progress_lemmas
from .anomalies import KNOBS, Knob, anomaly

TURNED: dict[Knob, str] = {
    "max_num_seqs": "max_num_seqs lowered by one",
    "max_num_batched_tokens": "max_num_batched_tokens lowered by one",
    "watermark": "the watermark raised by one block",
}
# Which claims about knobs and preemption hold.
NEVER_PREEMPTED = (
    "more_blocks_are_one_block_more",
    "holdings_never_exceed_front_door",
    "lone_running_request_can_grow",
    "full_pool_never_runs_out",
)


def never_preempted(block: int | None = None) -> list[Obligation]:
    arithmetic = [
        lemma for lemma in admission_lemmas.obligations(block) if lemma.name in NEVER_PREEMPTED
    ]
    return arithmetic + code_lemmas.knobs(block)


_SWITCHED_OFF = (
    "the model is that of the revision `documented`, not that of a release; every feature that is "
    "off by default is off, such as drafts, steps in flight, connectors, encoders, KV groups, "
    "adapters, the adaptive threshold and control events"
)
_GROWS = (
    "the code runs with the chosen block size (16 tokens for `any`); a running request holds one "
    "or two blocks, and takes at most three more at once"
)
_JOINS = "a newcomer hits at most two blocks, and holds at most three after its first chunk"
_HITS = (
    "prefix caching is on, and every block is cached; hits are looked up in prompts of at most two "
    "blocks and a token, with the chosen block size (16 tokens for `any`), and in more tokens "
    "for one block, which stands for each of them"
)
_LOOPS = (
    "a decision runs with one to three requests, under both policies, and is assumed to do the "
    "same for more; each waiting request hits any number of blocks, of the chosen size (16 tokens "
    "for `any`)"
)
_ARRIVALS = (
    "a whole step runs with one or two requests, or with three that run, and the first may be "
    "aborted within it; arrivals and aborts between two steps run with up to two; the message to "
    "the worker is made for up to three"
)
_GIVEN_BACK = "blocks that a request gives back have four tokens, and it has at most three"
_ROOM = "the pool may refuse any request, unless it is the only one"
_OWN_ADMISSION = (
    "if no request runs, the model's own admission runs with one or two waiting ones, the first of "
    "which hits at most two blocks"
)

_BUDGET = RuleProof(
    "Can a step compute more tokens than its budget, or a request more or fewer than its share "
    "(the least of its uncomputed tokens, the threshold and the budget left)? Can a prefix hit "
    "contain a request's last known token?",
    "No.",
    (
        *(_SWITCHED_OFF, _LOOPS, _ROOM, _HITS),
        _ARRIVALS,
    ),
    "what a worker is told, which requests an observation shows, and in what order",
    combine(budget_lemmas.obligations, code_lemmas.budget),
)
_ADMISSION = RuleProof(
    "Can a request be admitted that could not finish even if it ran alone? If no request runs, can "
    "the first in line be kept out although it could finish?",
    "No. V1CP-R12 is about requests that wait while others run.",
    (
        *(_SWITCHED_OFF, _GROWS, _JOINS),
        "a decision in which at most one request runs has up to three requests, one in which two "
        "run has no other, and the pool has room for one that is alone (a block lemma)",
        *(_OWN_ADMISSION, _ARRIVALS, _GIVEN_BACK),
    ),
    "how many blocks the watermark amounts to, and which blocks a prefix-cache hit finds",
    combine(admission_lemmas.obligations, code_lemmas.admission),
)
_PROGRESS = RuleProof(
    "Can accepted requests block each other forever?",
    "No; under the priority policy, this holds only after the last request has arrived. Under "
    "FCFS, a request waits for at most max_model_len steps per request ahead of it.",
    (
        *(_SWITCHED_OFF, _LOOPS, _OWN_ADMISSION, _GROWS),
        "a request that is alone has room (V1CP-R19's lemmas)",
        *(_ARRIVALS, _GIVEN_BACK),
    ),
    "how a step with three requests, one of which waits, or with more is carried out",
    combine(progress_lemmas.obligations, code_lemmas.progress),
)
_KNOBS = RuleProof(
    "Can a remedy against preemption lead to more preemptions?",
    "Yes, each of the three can: without --prove, the search shows runs in which it does. With a "
    "single slot, or with room for all requests, no request is preempted.",
    (
        _SWITCHED_OFF,
        _GROWS,
        "a decision runs with one or two requests, under both policies, and is assumed to do the "
        "same for more; each waiting request hits any number of blocks, of the chosen size",
        *(_ROOM, _ARRIVALS, _GIVEN_BACK),
        "no request holds more than its own blocks; sharing only helps",
    ),
    "how a step with three requests, one of which waits, or with more is carried out; that a pool "
    "with room for max_num_seqs requests of max_model_len never runs out is arithmetic alone",
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
