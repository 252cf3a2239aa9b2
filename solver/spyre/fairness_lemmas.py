"""Lemmas which show that a step of a release that pauses requests preserves the fairness order
(SPY-R51, SPY-P01).

A whole step runs on symbols, with up to three requests, whichever outputs have priority. Any batch
of them may or may not be within the limit. A further request may be in its prefill, and one may
wait. The rest of the state and of the configuration may be anything. `pausing_lemmas` proves what
follows from the fairness order, for any number of requests.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from operator import is_
from typing import Any, NamedTuple

import z3

from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_5_2, scheduler
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.passed_on import must_be
from ..smt.terms import all_of, any_of, boolean, integer
from .code_lemmas import between_steps
from .pausing_lemmas import FairnessRank
from .pausing_lemmas import before as ahead
from .surroundings import BLOCK, any_constraints, any_switches, make_request, same_pool
from .symbolic_admission import length
from .symbolic_state import any_rest

# The numbers of requests that decode, and that are paused, before a step.
BATCHES = ((1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))


class Priority(NamedTuple):
    """Which outputs go first, and the ending of the names of lemmas about this order."""

    outputs: str
    ending: str


SHORT, LONG = PRIORITIES = Priority("short", ""), Priority("long", "_long")
STEP = ("spyre.release_2_5_2.pause_and_resume", "spyre.release_2_5_2.fairness_order")


def obligations(block: int | None = None) -> list[Obligation]:
    size, starts, order = block or BLOCK, "spyre.release_2_5_2.candidate", STEP[1]
    return [
        *(
            step_keeps_fair_order(size, decoding, paused, priority)
            for decoding, paused in BATCHES
            for priority in PRIORITIES
        ),
        *(
            replace(
                code_starts_newcomer_behind_paused(size, 0, paused, priority), code=(starts, order)
            )
            for paused in (1, 2)
            for priority in PRIORITIES
        ),
        *(code_starts_newcomer_behind_paused(size, 1, paused, SHORT) for paused in (0, 1)),
        code_keeps_lone_request(size),
        *between_steps(size, "2.5.2"),
    ]


Asked = list[tuple[set[str], Any]]  # the ids of each batch that is compared, and the answer


def _any_limit(
    run: SymbolicRun, config: Any, asked: Asked, lone_exceeds: int
) -> Callable[[Any, Any], bool]:
    """Return a replacement for the check of the limit: any batch may or may not exceed the limit,
    but a request that is alone does so only with `lone_exceeds`."""

    def fits(given: Any, batch: Any) -> bool:
        must_be(given, config)
        answer = z3.Bool(f"fits {len(asked)}")
        if len(batch) == 1 and not lone_exceeds:
            answer = z3.BoolVal(True)
        asked.append(({request.id for request in batch}, answer))
        return run.answer(answer)

    return fits


@lemma(
    "Requests are considered in fairness order. Each decodes if it fits with those kept so far, so "
    "the first one does. Paused requests stay ahead of those behind them, and decoding requests "
    "fall behind all paused ones. A prefill step leaves both as they were (decoding: {decoding}, "
    "paused: {paused}; {priority.outputs} outputs first).",
    *STEP,
    "spyre.release_2_5_2.settled",
    name="step_keeps_fair_order_{decoding}_{paused}{priority.ending}",
)
def step_keeps_fair_order(
    block: int, decoding: int, paused: int, priority: Priority, lone_exceeds: int
) -> list[Any]:
    """Claim that the order is kept by every step that decides which requests to pause, even if the
    step interrupts a prefill. A prefill step must change neither the requests that decode nor those
    that are paused.

    If `lone_exceeds` is 1, make the guard's claim instead, which must fail: a request that is alone
    may exceed the limit.
    """
    numbers = Numbers()
    count = decoding + paused
    steps = [length(numbers, "steps", 0) for _ in range(count)]
    generated = [length(numbers, "generated") for _ in range(count)]
    left = [length(numbers, "left") for _ in range(count)]
    # Early ends of three requests would take a minute.
    ends = [length(numbers, "ends") for _ in range(count)] if count < 3 else left
    numbers.facts += [end <= most for end, most in zip(ends, left, strict=True)]
    rest = length(numbers, "rest")
    numbers.facts += [step == 0 for step in steps[:decoding]]
    numbers.facts += [step >= 1 for step in steps[decoding:]]
    numbers.facts.append(boolean("long outputs first") == (priority is LONG))
    # Of equal requests, a paused one goes before a decoding one.
    places = [z3.IntVal(n + count * (n < decoding)) for n in range(count)]
    ranks = list(map(FairnessRank, steps, generated, places))

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block)
        requests = tuple(
            make_request(
                run,
                str(n),
                paused_steps=steps[n],
                generated=generated[n],
                max_tokens=generated[n] + left[n],
                output_len=generated[n] + ends[n],
                computed=1,
                blocks=(1,),
                **any_hit(str(n)),
            )
            for n in range(count)
        )
        ongoing = make_request(run, "ongoing", prompt=rest + 1, computed=1)
        prefills, decodes = run.answer(z3.Bool("prefills")), requests[:decoding]
        asked, observed = Asked(), list[Any]()
        waits = make_request(run, "waits") if run.answer(z3.Bool("another waits")) else None
        state = State(
            waiting=(waits,) if waits else (),
            running=(ongoing, *decodes) if prefills else decodes,
            paused=requests[decoding:],
            **any_rest(run),
        )
        with (
            any_constraints(run, REVISIONS["2.5.2"]) as revision,
            stubs(documented, max_tkv=lambda *_: 1, written=lambda *_: []),
            stubs(release_2_5_2, fits_limit=_any_limit(run, config, asked, lone_exceeds)),
            stubs(
                pool_of,
                prefix_hit=lambda *_: (),
                hold=lambda config, number, covered, pool: (number, pool),
                release=same_pool,
            ),
            stubs(scheduler, observe=lambda *given: observed.append(given)),
        ):
            after, _ = SpyreModel(config, revision).step(state)
            [(*_, decision, _, _, _)] = observed
            if decision.kind == "prefill":
                return _stay(requests, after)
            before = [request.id for request in release_2_5_2.fairness_order(config, state)]
            order = [request.id for request in release_2_5_2.fairness_order(config, after)]
        chosen = [member.id for member in decision.members]
        return before, chosen, [request.id for request in after.paused], order, asked

    def fair(result: Any) -> Any:
        if isinstance(result, bool):
            return z3.BoolVal(result)
        before, chosen, still, order, asked = result
        ok = before[0] in chosen and {*chosen, *still} == {*before}
        for name in still:
            behind = [other for other in before[before.index(name) + 1 :] if other in order]
            behind += [other for other in chosen if other in order]
            ok = ok and all(order.index(name) < order.index(other) for other in behind)
        ordered = [ranks[int(name)] for name in before]
        return all_of(
            ok,
            *(ahead(first, then, priority is LONG) for first, then in pairwise(ordered)),
            _stays_if_it_fits(before, {*chosen}, asked),
        )

    return holds_on(numbers, paths(numbers, code), fair)


def _stays_if_it_fits(ordered: list[str], kept: set[str], asked: Asked) -> Any:
    """Return whether two things hold. The kept requests were compared with the limit together, and
    fit. Every other request was compared together with the kept ones ahead of it, and did not
    fit."""
    claims = [any_of(not kept, *(fits for batch, fits in asked if batch == kept))]
    for at, name in enumerate(ordered):
        if name not in kept:
            tried = kept & {*ordered[:at]} | {name}
            claims.append(any_of([z3.Not(fits) for batch, fits in asked if batch == tried]))
    return all_of(claims)


def _stay(requests: tuple[Sequence, ...], after: State) -> bool:
    """Return whether these requests, in this order, still decode or are paused, unchanged."""
    kept = [request for request in (*after.running, *after.paused) if request.id.isdigit()]
    return len(kept) == len(requests) and all(map(is_, kept, requests))


def any_hit(name: str) -> dict[str, Any]:
    """Return an arbitrary prefix hit of a request, and an arbitrary number of blocks that it has
    published."""
    return {field: integer(f"{field} of {name}") for field in ("prefix_hit", "published")}


@lemma(
    "A request that starts comes behind the paused requests, and finds a slot (running: {running}, "
    "paused: {paused}; {priority.outputs} outputs first).",
    "spyre.release_2_5_2.candidate",
    name="code_starts_newcomer_behind_paused_{running}_{paused}{priority.ending}",
)
def code_starts_newcomer_behind_paused(
    block: int, running: int, paused: int, priority: Priority, more: int
) -> list[Any]:
    """Claim that a newcomer joins behind the paused requests, and that it starts only after the
    last running request has left.

    If `more` is 1, make the guard's claim instead, which must fail: it claims that one more slot is
    free, and that a newcomer always starts.
    """
    numbers = Numbers()
    count = running + paused
    steps = [length(numbers, "steps") for _ in range(count)]
    generated = [length(numbers, "generated") for _ in range(count)]
    slots, prompt, tokens = (length(numbers, name) for name in ("slots", "prompt", "tokens"))
    numbers.facts.append(max(count, paused + 1) <= slots)
    numbers.facts.append(boolean("long outputs first") == (priority is LONG))

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, max_num_seqs=run.number(slots))
        requests = tuple(
            make_request(
                run,
                str(n),
                paused_steps=0 if n < running else steps[n],
                generated=generated[n],
                max_tokens=generated[n] + 1,
                **any_hit(str(n)),
            )._replace(computed=1)
            for n in range(count)
        )
        newcomer = make_request(run, "new", prompt=prompt, max_tokens=tokens, output_len=tokens)
        behind = (make_request(run, "behind"),) if run.answer(z3.Bool("another waits")) else ()
        state = State((newcomer, *behind), requests[:running], requests[running:], **any_rest(run))
        with (
            any_constraints(run, REVISIONS["2.5.2"]) as revision,
            stubs(documented, max_tkv=lambda *_: 1),
            stubs(pool_of, prefix_hit=lambda *_: ()),
        ):
            chosen = revision.candidate(config, revision, state)
        if chosen is None:
            return None
        joined = chosen._replace(id="new", computed=chosen.prompt, generated=1)
        after = state._replace(waiting=(), running=(joined, *state.running))
        return [request.id for request in release_2_5_2.fairness_order(config, after)]

    def behind(order: Any) -> Any:
        if order is None:
            return z3.BoolVal(not more)
        waiting = [str(n) for n in range(running, count)]
        ahead = all(order.index(name) < order.index("new") for name in waiting)
        return z3.And(z3.BoolVal(ahead), count + 1 + more <= slots)

    return holds_on(numbers, paths(numbers, code), behind)


@lemma(
    "A request that the check on arrival accepted is within the limit when it is alone.",
    "spyre.release_2_5_2.fits_limit",
)
def code_keeps_lone_request(block: int, more: int) -> list[Any]:
    numbers = Numbers()
    computed, limit, left = (length(numbers, name) for name in ("computed", "limit", "left"))
    numbers.facts.append(computed + left <= limit + more)

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, max_batch_tkv=run.number(limit))
        return release_2_5_2.fits_limit(config, [make_request(run, "0", computed=computed)])

    return holds_on(numbers, paths(numbers, code), z3.BoolVal)
