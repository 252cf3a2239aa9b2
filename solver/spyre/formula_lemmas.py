"""A formula guarantees the limit, for any number of requests (`argument.md`, "The check").

No lemma fixes the number of requests. One symbolic request represents all requests of its kind, and
their number is itself a symbol. Each lemma has a guard: the same claim with a weaker premise, which
Z3 must refute.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import volumetric
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.revision import Revision
from ...model.spyre.volumetric import Check
from ..smt.execution import Path, SymbolicRun, bare, holds_on, paths
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, decide, lemma
from .admission_lemmas import (
    formula_projects_every_member,
    request,
    walk_counts_every_request,
)
from .symbolic_admission import (
    SIZES,
    Joining,
    Lengths,
    base_of,
    blocks,
    length,
    lengths_of,
    make_numbers,
    own_tkv,
    round_up,
)
from .symbolic_state import SymbolicConfig


def obligations(formula: str, block: int | None = 64) -> list[Obligation]:
    lengths = lengths_of(block)
    return [
        growth_stays_within_base_blocks(lengths),
        tkv_ends_within_widest_blocks(lengths),
        covers_decoding(formula, lengths),
        covers_newcomer(formula, lengths),
        walk_accepts_only_what_fits(),
        accepted_request_fits_alone(),
        leaving_raises_no_tkv(lengths),
        fewer_requests_still_fit(),
        decode_step_adds_one_token(),
    ]


def loops(check: Check, block: int) -> list[Obligation]:
    """Return the lemmas on the check's code, for each number of decoding requests."""
    return [
        *(formula_projects_every_member(check, block, size) for size in SIZES[1:]),
        *map(walk_counts_every_request, (*SIZES[1:], None)),
    ]


@lemma("After k steps, a request that is at most as long as the base fits in the base's blocks.")
def growth_stays_within_base_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, base, steps = (length(numbers, name) for name in ("own", "base", "steps"))
    numbers.facts.append(own <= base)
    grown = round_up(numbers, lengths, own + steps)
    return negated(numbers, grown <= round_up(numbers, lengths, base + steps) - less)


@lemma("A tkv ends within the blocks of the widest member.")
def tkv_ends_within_widest_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    numbers.facts.append(widest >= blocks(numbers, lengths, own))
    reached = own_tkv(numbers, lengths, own, widest)
    return negated(numbers, reached <= widest * lengths.block - less)


class Batch(NamedTuple):
    """A batch and a newcomer, in symbols. No member of the batch is longer than the tkv that
    admission uses."""

    tkv: Any
    members: list[volumetric.Decoding]
    prompt: Any
    remaining: Any

    @property
    def base(self) -> Any:
        return base_of(self.tkv, Joining(self.prompt, self.remaining))


def batch_of(numbers: Numbers, decoding: int) -> Batch:
    """Return a batch of `decoding` requests and a newcomer, whose numbers are symbols."""
    tkv = length(numbers, "tkv")
    members = []
    for _ in range(decoding):
        computed, own = length(numbers, "computed"), length(numbers, "own_tkv")
        remaining = length(numbers, "remaining")
        prompt = length(numbers, "prompt")
        numbers.facts += [prompt <= computed, computed <= own, computed <= tkv]
        members.append(volumetric.Decoding(computed, remaining, own, prompt))
    return Batch(tkv, members, length(numbers, "prompt"), length(numbers, "remaining", 0))


def projected(formula: str, numbers: Numbers, lengths: Lengths, batch: Batch) -> list[Path]:
    """Return the paths on which the formula projects the batch."""
    project = volumetric.formula_named(formula)
    if project is None:
        raise KeyError(formula)

    def code(run: SymbolicRun) -> volumetric.Projection:
        members = [
            volumetric.Decoding(*(run.number(each) for each in member)) for member in batch.members
        ]
        prompt, tokens = run.number(batch.prompt), run.number(batch.remaining + 1)
        newcomer = volumetric.Newcomer(prompt, tokens)
        block = lengths.block if isinstance(lengths.block, int) else run.number(lengths.block)
        return project(run.number(batch.tkv), members, newcomer, block)

    return list(paths(numbers, code))


def covers(formula: str, block: int = 64) -> bool:
    lengths = lengths_of(block)
    lemmas = covers_newcomer(formula, lengths), covers_decoding(formula, lengths)
    return all(decide(lemma.claim())[0] == "unsat" for lemma in lemmas)


def _less(numbers: Numbers, weaker: int) -> Any:
    """Return how many tokens a guard subtracts from a term: one more than the term's slack."""
    return length(numbers, "less") if weaker else 0


@lemma("The term of a decoding request covers the base's blocks for as long as it runs.")
def covers_decoding(formula: str, lengths: Lengths, weaker: int) -> list[Any]:
    numbers = make_numbers(lengths)
    less = _less(numbers, weaker)
    batch = batch_of(numbers, 1)
    taken = projected(formula, numbers, lengths, batch)
    due = round_up(numbers, lengths, batch.base + batch.members[0].remaining)
    return holds_on(numbers, taken, lambda ends: bare(ends.decoding[0]) - less >= due)


@lemma("The term of the newcomer covers the base's blocks for as long as it runs.")
def covers_newcomer(formula: str, lengths: Lengths, weaker: int) -> list[Any]:
    numbers = make_numbers(lengths)
    less = _less(numbers, weaker)
    batch = batch_of(numbers, 1)
    taken = projected(formula, numbers, lengths, batch)
    due = round_up(numbers, lengths, batch.base + batch.remaining)
    return holds_on(numbers, taken, lambda ends: bare(ends.newcomer) - less >= due)


@lemma("A request that leaves raises no request's tkv.")
def leaving_raises_no_tkv(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, before, after = (length(numbers, name) for name in ("own", "before", "after"))
    numbers.facts += [before >= after, after >= blocks(numbers, lengths, own)]
    now = own_tkv(numbers, lengths, own, after)
    return negated(numbers, now <= own_tkv(numbers, lengths, own, before) - less)


@lemma("If the walk accepts early, or passes an active request, all active requests fit together.")
def walk_accepts_only_what_fits(beyond: int) -> list[Any]:
    """Claim that one iteration of the walk, at a request with any term, accepts only requests that
    fit together.

    At some later step with some tkv, `active` of the requests that are still to be visited
    (including the newcomer) run, and `others` do not.
    """
    numbers = Numbers()
    term, own, tkv, limit = (length(numbers, name) for name in ("term", "own", "tkv", "limit"))
    active, others = length(numbers, "active"), length(numbers, "others", 0)
    is_active = z3.Bool("is active")
    numbers.facts.append(z3.If(is_active, active >= 2, others >= 1))
    # By `covers_newcomer` and `covers_decoding`, the term of a request in the batch covers the tkv.
    numbers.facts += [tkv <= own, z3.Implies(is_active, tkv <= term)]

    def code(run: SymbolicRun) -> Any:
        arguments = (run.number(number) for number in (term, active + others, own, limit))
        answer = volumetric.answer_at(*arguments)
        return answer if answer is None else bool(answer)

    def fits(answer: bool | None) -> Any:
        accepted = {True: z3.BoolVal(True), None: is_active, False: z3.BoolVal(False)}[answer]
        return z3.Implies(accepted, active * (tkv + beyond) <= limit)

    return holds_on(numbers, paths(numbers, code), fits)


class ArrivingRequest(NamedTuple):
    """A request on arrival, in symbols."""

    prompt_len: Any
    max_tokens: Any


@lemma("A request that is accepted on arrival is within the limit when it is alone.")
def accepted_request_fits_alone(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, tokens, longest, limit, step = (
        length(numbers, name) for name in ("prompt", "tokens", "longest", "limit", "step")
    )
    pool, block, chunk, slots = (
        length(numbers, name) for name in ("num_blocks", "block", "chunk", "slots")
    )

    def code(run: SymbolicRun, revision: Revision) -> Any:
        settings = SpyreConfig(
            block_size=run.number(block),
            chunk_size=run.number(chunk),
            max_num_seqs=run.number(slots),
            max_model_len=run.number(longest),
            max_batch_tkv=run.number(limit),
        )
        config = cast(Any, SymbolicConfig(run, settings, pool))
        arriving = cast(Any, ArrivingRequest(run.number(prompt), run.number(tokens)))
        return SpyreModel(config, revision).refusal(arriving) is None

    of_each = (partial(code, revision=revision) for revision in REVISIONS.values())
    taken = [path for each in of_each for path in paths(numbers, each)]
    numbers.facts.append(step <= tokens - 1)  # in decode steps; the first token needs none
    within = prompt + step + more <= limit  # alone, a request's tkv is its length
    return holds_on(numbers, taken, lambda let_in: z3.Or(z3.BoolVal(not let_in), within))


@lemma("Requests that fit still fit if there are fewer of them and the tkv is no larger.")
def fewer_requests_still_fit(more: int) -> list[Any]:
    numbers = Numbers()
    limit, before, after = (length(numbers, name) for name in ("limit", "before", "after"))
    larger, smaller = length(numbers, "larger"), length(numbers, "smaller")
    numbers.facts += [after <= before + more, smaller <= larger, before * larger <= limit]
    return negated(numbers, after * smaller <= limit)


@lemma("A decode step makes a request one token longer and leaves it one fewer step to run.")
def decode_step_adds_one_token(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, computed, tokens, generated = (
        length(numbers, name) for name in ("prompt", "computed", "tokens", "generated")
    )
    step = length(numbers, "step")

    def code(run: SymbolicRun) -> Any:
        own = {"prompt": run.number(prompt), "max_tokens": run.number(tokens)}
        now = request(0, computed=run.number(computed), generated=run.number(generated), **own)
        then = request(
            0, computed=run.number(computed + 1), generated=run.number(generated + 1), **own
        )
        return [
            bare(number) for number in (now.computed, now.remaining, then.computed, then.remaining)
        ]

    def moved(result: Any) -> Any:
        has, left, has_then, left_then = result
        same_length = has + step + 1 == has_then + step + more
        return z3.And(same_length, (left >= step + 1) == (left_then >= step))

    return holds_on(numbers, paths(numbers, code), moved)
