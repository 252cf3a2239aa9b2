"""Decode pausing keeps the limit (SPY-R07), and paused requests resume (SPY-P01).

**The limit holds whichever requests join.** Before each decode step,
`release_2_5_2.pause_and_resume` considers the requests one by one. It keeps a request if, together
with those kept so far, it is within the limit at the tkv of the coming step.

1. `kept_requests_fit_after_each_turn`: after each request, all kept requests together are within
   the limit. The second of the three symbolic requests represents any number.
2. `no_tkv_exceeds_compared_tkv`: no request's tkv in the next step exceeds the tkv that is compared
   with the limit.

So the kept batch is within the limit, however large it is. `decoding_requests_were_kept` runs the
scheduler's step with up to three requests, some of which may be paused. It shows that the requests
that decode were compared with the limit as one batch; `limit_is_compared_with_next_step` is about
that comparison. If admission already keeps batches within the limit, no request is ever paused
(`batch_within_limit_is_not_paused`).

**How long a request stays paused (SPY-R51, SPY-P01).** Requests that may decode are considered in
the fairness order: first those paused longest, then by generated tokens, then by place in the
queue. Let N be the number of requests that share the limit, including paused ones.

1. `first_in_order_decodes`: the first in this order decodes, since a request on its own is within
   the limit.
2. `paused_request_stays_ahead`: while a request is paused, no request behind it gets ahead of it.
3. `decoding_request_falls_behind`: a request that is ahead of a paused one and decodes is behind it
   from then on. `new_request_joins_behind`: a request that starts is also behind the paused one.
4. By 1 and 3, each step that decides on pauses lowers the number of requests ahead of a paused one
   by at least one; by 2, none gets ahead of it. So at most N - 1 such steps in a row hold it back.
5. `slots_bound_decoding_and_paused`: N is at most max_num_seqs, although a paused request has no
   slot.

So paused requests never starve one another, whichever outputs have priority.

Prefills can starve them, though. No pauses are decided in a prefill, so 4 does not count prefills.
While a request decodes, none starts. But when the last decoding request leaves, release 2.5.2
admits the next waiting one although others are paused (its `is_empty`). If that one stays, the next
step decides on pauses. But if its prompt has one chunk and it generates one token, it leaves at
once, and the next waiting one is admitted. If such requests keep coming, this goes on forever
(`starvation`). With finitely many requests, a paused one waits for at most 2 (N - 1) steps, plus
one for each such one-token request.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import z3

from ...model.spyre import documented, release_2_5_2
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, UndecidedError, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import plain_id
from ..smt.terms import all_of, any_of, boolean, integer
from . import step_claims
from .admission_lemmas import BLOCK
from .loop_lemmas import kept_requests_fit_after_each_turn
from .step_lemmas import between_steps
from .symbolic_admission import SIZES, Lengths, blocks, length, own_tkv, own_tkvs
from .symbolic_state import MODULES, StepConfiguration, Stepped, any_config, any_request, several
from .symbolic_step import Step

# The numbers of requests that decode, and that are paused, before a step. The last decoding request
# represents any number; if none decodes or two are paused, the last paused one does.
BATCHES = ((0, 0), (0, 1), (1, 0), (2, 0), (0, 2), (1, 1), (2, 1), (1, 2))
MORE = ((3, 0), (2, 2))  # with these, only the function that pauses and resumes requests is run
FEW = SIZES[1:-1]  # how many decoding requests are compared with the limit


def any_number(block: int = BLOCK) -> list[Obligation]:
    return [no_tkv_exceeds_compared_tkv(block)]


def few(revision: Revision, block: int = BLOCK, chunk: int = 8 * BLOCK) -> list[Obligation]:
    """Return the lemmas on the step's code. Their names contain the numbers of decoding and paused
    requests."""
    configuration = StepConfiguration(revision, block=block, chunk=chunk)
    steps = [SettlingStep(configuration, decoding, paused) for decoding, paused in BATCHES]
    return [
        kept_requests_fit_after_each_turn(),
        *(about(step) for step in steps for about in (decoding_requests_were_kept, keeps_order)),
        *(resumed_requests_fit(SettlingStep(configuration, *batch)) for batch in MORE),
        chosen_request_prefills_or_waits(configuration),
        *between_steps(configuration),
        *(limit_is_compared_with_next_step(size, block) for size in (*FEW, None)),
    ]


def limit_is_compared_with_next_step(size: int | None, block: int = BLOCK) -> Obligation:
    """Return the lemma for `size` requests. None means any number of requests, with two
    different lengths."""
    return _of_size(
        *(size, block, "limit_is_compared_with_next_step", _limit_is_compared_with_next_step),
        "Requests ({requests}) that together fit the limit stay within it in the next step.",
    )


def _of_size(
    size: int | None, block: int, name: str, claim: Callable[..., list[Any]], sentence: str
) -> Obligation:
    return Obligation(
        f"{name}_{size or 'any'}",
        sentence.format(requests=size or "any number, of two lengths"),
        partial(claim, size, block, 0),
        partial(claim, size, block, 1),
    )


class Batch(NamedTuple):
    """Decoding requests in symbols, each with any number of tokens."""

    numbers: Numbers
    limit: Any
    tokens: list[Any]
    more: Any  # the number of additional requests that the last one represents
    block: int

    @classmethod
    def make(cls, size: int | None, block: int) -> "Batch":
        numbers = Numbers()
        tokens = [length(numbers, "tokens") for _ in range(size or 2)]
        for number, own in enumerate(tokens):
            numbers.facts += [_prompt(number) >= 1, _prompt(number) <= own]
        more = length(numbers, "more", 0) if size is None else None
        return cls(numbers, length(numbers, "limit"), tokens, more, block)

    def config(self, run: SymbolicRun) -> Any:
        return any_config(run, self.block, self.limit)

    def requests(self, run: SymbolicRun) -> tuple[Sequence, ...]:
        members = [
            any_request(
                run, str(number), prompt=run.number(_prompt(number)), computed=run.number(own)
            )
            for number, own in enumerate(self.tokens)
        ]
        if self.more is not None:
            members[-1] = several(members[-1], run.number(self.more))
        return tuple(members)

    @property
    def count(self) -> Any:
        return len(self.tokens) if self.more is None else len(self.tokens) + self.more

    def reached(self) -> list[Any]:
        after = [tokens + 1 for tokens in self.tokens]
        return own_tkvs(self.numbers, Lengths(self.block, None), after)

    def compare_products(self, tkvs: list[Any]) -> None:
        """Give Z3 the fact that a larger tkv means a larger volume, which it would be slow to find
        out."""
        pairs = [(own, bare(tkv)) for own, tkv in product(self.reached(), tkvs)]
        for smaller, larger in [*pairs, *((tkv, own) for own, tkv in pairs)]:
            more = self.count * smaller <= self.count * larger
            self.numbers.facts.append(z3.Implies(smaller <= larger, more))

    def within(self, more: int) -> Any:
        """Return whether these requests are within the limit in the next step."""
        return all_of([self.count * own + more <= self.limit for own in self.reached()])


def _prompt(number: int) -> Any:
    return integer(f"prompt of {number}")


def _noting_tkvs(compared: list[Any]) -> AbstractContextManager[None]:
    """Inside the context, append each tkv of a batch to `compared`."""
    whole = documented.max_tkv

    def max_tkv(lengths: Any, block_size: int) -> Any:
        compared.append(whole(lengths, block_size))
        return compared[-1]

    return stubs(documented, max_tkv=max_tkv)


def _limit_is_compared_with_next_step(size: int | None, block: int, more: int) -> list[Any]:
    batch, compared = Batch.make(size, block), list[Any]()

    def code(run: SymbolicRun) -> Any:
        with on_symbols(documented, release_2_5_2), _noting_tkvs(compared):
            return bool(release_2_5_2.fits_limit(batch.config(run), batch.requests(run)))

    taken = list(paths(batch.numbers, code, quick=True))
    if size is None:
        batch.compare_products(compared)
    within = batch.within(more)
    return holds_on(batch.numbers, taken, lambda fits: any_of(not fits, within))


def batch_within_limit_is_not_paused(size: int | None, block: int) -> Obligation:
    """Return the lemma for `size` requests; None as in `limit_is_compared_with_next_step`."""
    return _of_size(
        *(size, block, "batch_within_limit_is_not_paused", _batch_within_limit_is_not_paused),
        "A batch ({requests}) that is within the limit in the next step is not paused.",
    )


def _batch_within_limit_is_not_paused(size: int | None, block: int, more: int) -> list[Any]:
    batch, compared = Batch.make(size, block), list[Any]()

    def code(run: SymbolicRun) -> Any:
        state = State(running=batch.requests(run))
        with on_symbols(documented, release_2_5_2), _noting_tkvs(compared):
            if not release_2_5_2.fits_limit(batch.config(run), state.running):
                return False
            after = release_2_5_2.pause_and_resume(batch.config(run), state)
        return after is state

    taken = list(paths(batch.numbers, code, quick=True))
    if size is None:
        batch.compare_products(compared)
    within = batch.within(-more)
    return holds_on(batch.numbers, taken, lambda stays: any_of(z3.Not(within), stays))


class SettlingStep(Step):
    """A step of a release that pauses requests. Any batch may or may not be within the limit."""

    settles = True

    def __init__(self, configuration: StepConfiguration, decoding: int, paused: int) -> None:
        super().__init__(configuration, decoding + paused, pauses=True)
        self.decoding, self.paused = decoding, paused
        last = decoding - 1 if decoding and paused < 2 else self.size - 1
        self.counted = last if self.size else None

    def state(self, run: SymbolicRun) -> State:
        state = super().state(run)
        decoding = [request for request in state.running if plain_id(request.id).startswith("r")]
        sits_out = decoding[len(decoding) - self.paused :]
        paused = tuple(
            request._replace(paused_steps=run.number(integer(f"paused {plain_id(request.id)}")))
            for request in sits_out
        )
        gone = {request.id for request in sits_out}
        running = tuple(request for request in state.running if request.id not in gone)
        return state._replace(running=running, paused=paused)


@lemma("No request's tkv exceeds the tkv that is compared with the limit.")
def no_tkv_exceeds_compared_tkv(block: int, less: int) -> list[Any]:
    """Claim that `documented.rectangle_tkv` is no less than the tkv of any member."""
    numbers, lengths = Numbers(), Lengths(block, None)
    longest, tokens, filled = (length(numbers, name) for name in ("longest", "tokens", "filled"))
    own = own_tkv(numbers, lengths, tokens, blocks(numbers, lengths, longest))
    last = tokens - (blocks(numbers, lengths, tokens) - 1) * block
    numbers.facts += [tokens <= longest, last <= filled, filled <= block]

    def code(run: SymbolicRun) -> Any:
        return bare(documented.rectangle_tkv(run.number(longest), run.number(filled), block))

    return holds_on(numbers, paths(numbers, code), lambda compared: own <= compared - less)


@lemma(
    "The requests of a decode step were compared with the limit together, in their current state, "
    "and fit (decoding: {step.decoding}, paused: {step.paused}).",
    name="decoding_requests_were_kept_{step.decoding}_{step.paused}",
)
def decoding_requests_were_kept(step: SettlingStep, more: int) -> list[Any]:
    return holds_on(step.numbers, step.paths, partial(_were_kept, step, more))


@lemma(
    "After a step, each request that has not left is in one queue, with the tokens that it has "
    "computed, and at most one prefills (decoding: {step.decoding}, paused: {step.paused}).",
    name="step_keeps_requests_{step.decoding}_{step.paused}",
)
def keeps_order(step: SettlingStep, more: int) -> list[Any]:
    return holds_on(step.numbers, step.paths, partial(step_claims.keeps_order, step, more))


@lemma(
    "Requests that keep decoding or resume were compared with the limit together, in their current "
    "state, and fit (decoding: {step.decoding}, paused: {step.paused}).",
    name="resumed_requests_fit_{step.decoding}_{step.paused}",
)
def resumed_requests_fit(step: SettlingStep, more: int) -> list[Any]:
    """Claim that the requests which `pause_and_resume` lets decode fit within the limit together.
    That function runs on its own, with more requests than a whole step can run."""

    def code(run: SymbolicRun) -> Any:
        config, before, compared = step.config(run), step.state(run), list[tuple[Any, Any]]()

        def fits_limit(given: Any, batch: Any) -> bool:
            if given is not config:
                raise UndecidedError("compares a batch with the limit of another configuration")
            compared.append(([*batch], boolean(f"fits {len(compared)}")))
            return run.answer(compared[-1][1])

        with on_symbols(*MODULES), stubs(release_2_5_2, fits_limit=fits_limit):
            after = release_2_5_2.pause_and_resume(config, before)
        return after.decoding, compared

    def fit(result: Any) -> Any:
        decoding, compared = result
        ids = {request.id for request in decoding}
        return any_of(not ids, *_fits_as_it_is(step, more, ids, compared))

    return holds_on(step.numbers, paths(step.numbers, code, quick=True), fit)


@lemma(
    "If a request is in its prefill, a step chooses it; otherwise, it chooses a waiting request or "
    "none."
)
def chosen_request_prefills_or_waits(configuration: StepConfiguration, ignored: int) -> list[Any]:
    """Claim that the release's `candidate` chooses the request in its prefill. If there is none, it
    chooses a waiting request or none. The constraints may give any answer. With `ignored`, the
    claim leaves out the request in its prefill."""
    step, revision = SettlingStep(configuration, 1, 0), configuration.revision

    def code(run: SymbolicRun) -> Any:
        def any_answer(name: str) -> Callable[..., bool]:
            return lambda *given: run.answer(boolean(f"{name} {plain_id(given[-1].id)}"))

        config, state = step.config(run), step.state(run)
        asked = replace(revision, fits_pool=any_answer("fits pool"))
        with on_symbols(*MODULES), stubs(documented, may_prefill=any_answer("may prefill")):
            chosen = revision.candidate(config, asked, state)
        ongoing = None if ignored else state.prefilling
        choice = [*state.waiting] if ongoing is None else [ongoing]
        return z3.BoolVal(chosen is None or any(chosen is request for request in choice))

    return holds_on(step.numbers, paths(step.numbers, code, quick=True), lambda holds: holds)


def _were_kept(step: SettlingStep, more: int, stepped: Stepped) -> Any:
    ran = {*stepped.computed.scheduled}
    if not step.size:
        return z3.BoolVal((stepped.decision.kind == "decode") == bool(more))
    if stepped.decision.kind != "decode":
        return z3.BoolVal(not ran & {f"r{number}" for number in range(step.size)})
    kept = any_of([*_fits_as_it_is(step, more, ran, stepped.compared)])
    return all_of(kept, step_claims.reports_its_tkv(step, stepped))


def _fits_as_it_is(step: Step, more: int, ids: set[str], compared: Any) -> Iterator[Any]:
    """Yield a claim for each comparison of exactly these requests with the limit: they fit, and
    they were compared at the lengths that they have before the step."""
    lengths = {f"r{number}": member.computed for number, member in enumerate(step.members)}
    for batch, fits in compared:
        if {request.id for request in batch} == ids and len(batch) == len(ids):
            as_it_is = (bare(request.computed) == lengths[request.id] + more for request in batch)
            yield all_of(fits, *as_it_is)


class FairnessRank(NamedTuple):
    """A request's key in the fairness order; `place` breaks ties."""

    paused_steps: Any
    generated: Any
    place: Any


def obligations(block: int | None = None) -> list[Obligation]:
    return [make() for make in LEMMAS]


def before(rank: FairnessRank, other: FairnessRank, long_outputs: Any) -> Any:
    """Return whether `rank` goes before `other`, as `fairness_lemmas` proves for the code."""
    shorter = z3.If(
        long_outputs, rank.generated > other.generated, rank.generated < other.generated
    )
    as_long = rank.generated == other.generated
    tie = any_of(shorter, all_of(as_long, rank.place < other.place))
    equal = rank.paused_steps == other.paused_steps
    return any_of(rank.paused_steps > other.paused_steps, all_of(equal, tie))


def _any_rank(numbers: Numbers) -> FairnessRank:
    return FairnessRank(
        numbers.fresh("paused_steps", 0),
        numbers.fresh("generated", 1),
        numbers.fresh("place", 0),
    )


def _paused(rank: FairnessRank, place: Any, uncounted: int = 0) -> FairnessRank:
    """Return the rank of a request after a step in which it was paused. `place` is its new
    place."""
    return FairnessRank(rank.paused_steps + 1 - uncounted, rank.generated, place)


def _kept(numbers: Numbers, rank: FairnessRank) -> FairnessRank:
    """Return the rank of a request after a step in which it decoded. Its new place is arbitrary."""
    return FairnessRank(z3.IntVal(0), rank.generated + 1, numbers.fresh("place", 0))


@lemma("The first request in the fairness order decodes in this step.")
def first_in_order_decodes(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    generated, limit = numbers.fresh("generated", 1), numbers.fresh("limit", 1)
    numbers.facts += [generated < max_tokens, prompt + max_tokens - 1 <= limit + more]
    computed = prompt + generated - 1
    return negated(numbers, computed + 1 <= limit)  # alone, a request's tkv is its length


@lemma("A request behind one that this step pauses is still behind it afterwards.")
def paused_request_stays_ahead(uncounted: int) -> list[Any]:
    numbers = Numbers()
    rank, other, long_outputs = _any_rank(numbers), _any_rank(numbers), boolean("long_outputs")
    numbers.facts.append(before(rank, other, long_outputs))
    # Paused requests are listed in the order in which they were considered.
    first, second = numbers.fresh("first", 0), numbers.fresh("second", 0)
    numbers.facts.append(first < second)
    still = _paused(rank, first, uncounted)
    return negated(
        numbers,
        all_of(
            before(still, _paused(other, second), long_outputs),
            before(still, _kept(numbers, other), long_outputs),
        ),
    )


@lemma("A request that decodes in this step is behind the paused requests afterwards.")
def decoding_request_falls_behind(uncounted: int) -> list[Any]:
    numbers = Numbers()
    first, other, long_outputs = _any_rank(numbers), _any_rank(numbers), boolean("long_outputs")
    numbers.facts.append(before(other, first, long_outputs))
    still = _paused(first, first.place, uncounted)
    return negated(numbers, before(still, _kept(numbers, other), long_outputs))


@lemma("A request that starts is behind the paused requests.")
def new_request_joins_behind(uncounted: int) -> list[Any]:
    numbers = Numbers()
    first, newcomer, long_outputs = _any_rank(numbers), _any_rank(numbers), boolean("long_outputs")
    numbers.facts.append(newcomer.paused_steps == 0)
    still = _paused(first, first.place, uncounted)
    return negated(numbers, before(still, newcomer, long_outputs))


@lemma("Decoding and paused requests together never exceed the slots.")
def slots_bound_decoding_and_paused(none_there: int) -> list[Any]:
    """Claim that there are never more decoding and paused requests than slots, from a step that
    decides on pauses until the next prefill.

    If `none_there` is 1, make the guard's claim instead, which must fail: that step may pause every
    request.
    """
    numbers = Numbers()
    slots, together = numbers.fresh("slots", 1), numbers.fresh("together", 0)
    kept, running = numbers.fresh("kept", 1 - none_there), numbers.fresh("running", 0)
    paused = together - kept
    numbers.facts += [together <= slots, paused >= 0, running <= kept]
    # A prefill may start if no request runs, or if no request is paused and a slot is free
    # (SPY-R36, SPY-R52).
    starts = any_of(running == 0, all_of(paused == 0, running < slots))
    return negated(numbers, z3.Implies(starts, paused + running + 1 <= slots))


LEMMAS = (
    first_in_order_decodes,
    paused_request_stays_ahead,
    decoding_request_falls_behind,
    new_request_joins_behind,
    slots_bound_decoding_and_paused,
)
