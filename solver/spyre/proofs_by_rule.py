"""The proofs and counterexamples for each of Spyre's rules.

`limit_lemmas` returns the lemmas on the volumetric limit in one configuration: no request joins if
its batch could exceed the limit (SPY-R47), and no decode step exceeds it (SPY-R07). `argument.md`
gives the argument. `PROOFS` contains the other rules.
"""

from typing import NamedTuple, cast

from ...model.spyre.model import REVISIONS
from ...model.spyre.peak import CHECKS
from ...model.spyre.volumetric import ByFormula, Check, Formula, formula_named
from ..smt.obligation import Obligation, RuleProof, combine, import_models
from . import (
    chunk_lemmas,
    code_lemmas,
    constraint_lemmas,
    fairness_lemmas,
    formula_lemmas,
    length_lemmas,
    loop_lemmas,
    pausing_lemmas,
    peak_lemmas,
    progress_lemmas,
    promise_lemmas,
    reservation_lemmas,
    starvation,
    step_lemmas,
)
from .admission_sequences import ADMITS_BY, Setting
from .symbolic_admission import LARGE, MANY
from .symbolic_state import StepConfiguration

# The volumetric rules: no decode step exceeds the limit; no request joins if its batch could exceed
# it.
LIMIT, JOIN = "SPY-R07", "SPY-R47"
# How many decoding requests the step runs with, in words.
DECODING = f"up to {LARGE} decoding requests, as its name says; {MANY} count as any number"


class Group(NamedTuple):
    """A list of lemmas with a short title."""

    title: str
    lemmas: list[Obligation]


def limit_lemmas(rule: str, setting: Setting, block: int | None) -> list[Group]:
    """Return the lemmas that prove LIMIT or JOIN. `block` is in tokens; None means any size.

    LIMIT follows from JOIN by induction over admissions. In releases that pause requests, LIMIT
    holds whatever requests join.
    """
    import_models()
    revision = REVISIONS[setting.revision]
    pauses = "paused" in revision.shows
    check = CHECKS.get(setting.formula) or _check(setting)
    tokens = block or setting.block
    chunk = setting.chunk if setting.chunk % tokens == 0 else 8 * tokens
    alike = Group(
        "what the code does, and its loops over any number of requests",
        loop_lemmas.obligations(revision, check, tokens, chunk),
    )
    of_tokens = f"blocks of {tokens}"
    any_number = f"any number of requests ({of_tokens})"
    sizes = _sizes(setting, block)
    if pauses and rule == LIMIT:
        return [
            alike,
            Group(any_number, pausing_lemmas.any_number(tokens)),
            Group(
                f"the scheduler's step, run with as many requests as its name says ({sizes})",
                pausing_lemmas.few(revision, tokens, chunk),
            ),
        ]
    code: list[Obligation] = []
    if setting.formula in CHECKS:
        code = peak_lemmas.code(setting.formula, tokens)
        lemmas = peak_lemmas.obligations(setting.formula, block)
        loops = peak_lemmas.loops(setting.formula, tokens)
    else:
        lemmas = formula_lemmas.obligations(setting.formula, block)
        loops = formula_lemmas.loops(check, tokens)
    # If the pool is full, 2.1.2 forgets its tkv until the next decode step.
    configuration = StepConfiguration(
        revision, setting.interleave, tokens, chunk, bounded=setting.interleave
    )
    step = step_lemmas.obligations(configuration)
    step += step_lemmas.with_short_chunks(configuration)
    if pauses:
        step += [
            pausing_lemmas.batch_within_limit_is_not_paused(size, tokens)
            for size in (*pausing_lemmas.FEW, None)
        ]
    return [
        alike,
        Group("any number of requests", lemmas),
        *([Group(any_number, code)] if code else []),
        Group(f"the scheduler's step, run with {DECODING} ({sizes})", step),
        Group(f"the check's code, run with as many requests as its name says ({of_tokens})", loops),
    ]


def proven_for(rule: str, setting: Setting, block: int | None) -> str:
    """Return a description of the cases that the lemmas cover together. Nothing else is proven."""
    settles = setting.pauses and rule == LIMIT
    few = "0 to 3 requests that decode or are paused, at most 2 of each"
    few = few if settles else f"0 to {MANY} or {LARGE} requests that decode"
    requests = (
        f"every number of steps, with {few}, and 2 that wait (no lemma proves that these stand for "
        "any number of requests; it is argued from the code's loops)"
    )
    room = "" if settles or setting.interleave else ", if the pool has room for every prompt"
    return f"{requests}{room}, the code in {_sizes(setting, block)}"


def _sizes(setting: Setting, block: int | None) -> str:
    tokens = block or setting.block
    chunk = setting.chunk if setting.chunk % tokens == 0 else 8 * tokens
    return f"blocks of {tokens}, chunks of {chunk}"


def _check(setting: Setting) -> Check:
    """Return the check of the setting's formula, which is the revision's own check if the revision
    uses that formula."""
    if ADMITS_BY[setting.revision] == setting.formula:
        return REVISIONS[setting.revision].volume_check
    return ByFormula(cast(Formula, formula_named(setting.formula)))


_BLOCKS = "the code runs with the chosen block size (64 tokens for `any`)"
_CHUNKS_OF = "chunks of eight blocks"
_OTHERS = (
    "the rest of the state and of the configuration may have any value; fields of a request that "
    "the lemma does not mention are fixed"
)
_LENGTH = RuleProof(
    "Does max_model_len need a constraint?",
    "No, if it is a multiple of the block size: the check on arrival then keeps every tkv within "
    "it. Otherwise, a constraint does not keep every tkv within it either.",
    (
        f"{_BLOCKS}, in {_CHUNKS_OF}",
        "the constraint is checked with up to two decoding requests, also within a step of "
        "`sound`, in which another one may wait",
        "a step reports its tkv with up to two requests that decode or are paused, one that waits "
        "or prefills, and one that waits behind it, whatever the step decides; a decode step "
        "reports the tkv of up to five",
        "no request grows beyond prompt + max_tokens - 1 tokens (SPY-R07's lemmas)",
        "blocks have at least 3 tokens, and max_model_len is longer than two blocks",
        _OTHERS,
        "for a request that is alone, the volumetric checks are those of `symbolic_admission`, not "
        "the code, and without `document_figure` and `rounded`, which no release uses",
    ),
    "which tkv a prefill step reports, as long as it is within max_model_len, and how release "
    "2.1.2 answers a request that is alone",
    combine(length_lemmas.obligations, constraint_lemmas.obligations),
    {
        "max_model_len is not whole blocks: two requests are accepted, and exceed it": lambda: (
            length_lemmas.beyond_length(length_lemmas.Scale(max_model_len=32_770))
        ),
        "a request waits until another has ended, though no tkv would be too large": lambda: (
            length_lemmas.needless_wait(length_lemmas.Scale())
        ),
        "an idle step due to the tkv of a batch that has left (SPY-R35, 2.1.2)": lambda: (
            length_lemmas.idle_step(length_lemmas.Scale())
        ),
    },
)
_RESERVATION = RuleProof(
    "Are more blocks ever promised than are free?",
    "No, on the model `sound` and on that of 2.5.2.",
    (
        f"{_BLOCKS}, in chunks of two blocks, with one request, with one that joins another, or "
        "with three that share a block and may end together; before the step or the abort, a "
        "request holds at most two blocks, and its prompt fills at most four more; a hit finds "
        "one, or up to four in the check for room; two other free blocks may have its content; on "
        "2.5.2, a request that decodes may be paused",
        "requests that decode together take their new blocks one after the other",
        "no other constraint refuses a request; a refused request is promised nothing",
        _OTHERS,
    ),
    "which blocks a hit finds if it can find several, and under which content blocks are published "
    "(ALL-R09)",
    combine(reservation_lemmas.obligations, promise_lemmas.obligations),
    {
        "a request that fills the pool is never admitted (SPY-R38, model 2.5.2)": lambda: (
            reservation_lemmas.never_admitted(64, 512, 512)
        )
    },
)
_PAUSING = RuleProof(
    "Can paused requests starve?",
    "Not because of one another, but because of prefills. Without --prove, the search shows runs "
    "in which they do.",
    (
        f"{_BLOCKS}, in {_CHUNKS_OF}",
        "the code runs with up to three requests, each of which decodes, is paused or joins, and "
        "is assumed to do the same for more; beside those that decode or are paused, one may be in "
        "its prefill, and one may wait; the number of steps is only derived in prose",
        "a request that decodes or is paused has computed one token, and of three, none ends early",
        "any batch may or may not fit the limit, but a request that is alone does",
        f"{_OTHERS}; no step runs out of blocks",
    ),
    "the code of the limit for two or more requests",
    combine(pausing_lemmas.obligations, fairness_lemmas.obligations),
    {
        "one-token requests overtake a paused one (SPY-P01, SPY-R52, 2.5.2)": lambda: (
            starvation.starving(starvation.Scale(), members=5, passing=32)
        )
    },
)
_CHUNKS = RuleProof(
    "Do the chunks of a prompt cover it without gaps, after any prefix hit, and end where it ends?",
    "Yes.",
    (
        f"{_BLOCKS}, in {_CHUNKS_OF}",
        "beside the request, one may decode, be paused or be aborted within the step, and one may "
        "wait; beside a chunk, two may decode, and three may wait, and in a decode step, three may "
        "decode, and two may wait",
        "a hit consists of whole blocks without the last token; `blocks.admit`, which starts a "
        "request with its hit, runs with at most three of them",
        f"{_OTHERS}; no step runs out of blocks",
    ),
    "which blocks a hit finds, and those that a chunk writes (SPY-R56, SPY-R57)",
    combine(chunk_lemmas.obligations, code_lemmas.obligations),
    {
        "a hit on blocks that were counted, not computed (ALL-R08, 2.1.2 and 2.5.2)": lambda: (
            chunk_lemmas.hit_on_uncomputed(64, 8)
        )
    },
)

_PROGRESS = RuleProof(
    "How long does the first in line wait for its first chunk, on revision sound, without prefix "
    "caching and with an unbounded pool?",
    "No longer than the work ahead of it takes: at most the number of chunks in max_model_len plus "
    "twice the number of tokens. On 2.5.2 others overtake it; without --prove, the search shows "
    "runs in which they do.",
    (
        "the code runs with blocks of 64 and chunks of 512",
        "one decoding request stands for all decoding ones, and at most two waiting ones stand for "
        "all that wait",
        _OTHERS,
    ),
    "prefix caching, a bounded pool, and how a step computes its chunk",
    progress_lemmas.obligations,
    {
        "a request is refused for volume, and overtaken (ALL-R05, 2.5.2, pausing off)": (
            progress_lemmas.passed_by
        ),
        "one-token requests overtake a paused request (SPY-R52, 2.5.2)": lambda: (
            starvation.starving(starvation.Scale(), members=5, passing=32)
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
