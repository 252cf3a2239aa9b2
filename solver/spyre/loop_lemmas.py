"""Why lemmas about a few requests are taken to hold for any number of requests.

`code_does_only_what_is_defined` follows the code of the step and of the check (`smt.defined`). It
shows that a loop does the same for each request, and remembers none of the earlier ones. It also
limits how many loops there are, because with as many loops as requests, code could count the
requests (`WAYS`). So if a lemma holds for each of a few requests, in any state, we take it to hold
for each of any number of requests.

Some loops do carry a value from one request to the next. For each of these, another lemma proves
the induction step:

- `volumetric.accepts` counts the requests that it has yet to visit:
  `walk_goes_on_as_with_the_rest`. So after the walk has passed a request, its answer is the answer
  for the remaining ones alone.
- `scheduler.complete` removes ended requests one by one, and `scheduler.step` aborted ones:
  `leaving_only_removes`, `abort_only_removes_5`.
- `release_2_5_2.settled` collects the requests that keep decoding:
  `kept_requests_fit_after_each_turn`.
- `peak.largest_volume`: `each_turn_counts_its_request`. So after any number of turns, `longest` is
  the longest request so far, and the offsets are those of the requests so far.

`forward.compute_decode` carries the pool, which no lemma about the limit reads.
"""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

import z3

from ...model.pool import Names, Pool
from ...model.scenario import Request
from ...model.spyre import blocks, peak, release_2_5_2, scheduler, volumetric
from ...model.spyre.config import SpyreConfig
from ...model.spyre.forward import Forward
from ...model.spyre.model import SpyreModel
from ...model.spyre.own_formula import OwnRequest
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ...model.spyre.volumetric import Check
from ..smt.defined import Definitions
from ..smt.execution import (
    BeyondPrefixError,
    Prefix,
    SymbolicLength,
    SymbolicRun,
    UndecidedError,
    bare,
    holds_on,
    paths,
    stubs,
)
from ..smt.kinds import (
    HIDDEN,
    NAME,
    NUMBER,
    TRUTH,
    Kind,
    by_id,
    known,
    many,
    record,
    row,
)
from ..smt.loops import body_of
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import plain_id
from .admission_lemmas import LOOKS_AHEAD
from .symbolic_admission import MANY, length
from .symbolic_state import MODULES, StepConfiguration, any_request, several
from .symbolic_step import Step

BY_INDUCTION = {
    "spyre.volumetric.accepts to_come",
    "spyre.scheduler.complete state",
    "spyre.scheduler.step state",
    "spyre.release_2_5_2.settled kept",
    *(f"spyre.peak.largest_volume {name}" for name in ("longest", "offsets", "peak")),
}
COUNTS_DOWN = {"spyre.volumetric.accepts"}
CARRIES_POOL = {"spyre.forward.compute_decode pool"}
# The number of ways in which a step of each revision, an abort or an arrival could find out that
# there is one more request (`Scope.add`), and the number of further ways that a changed model may
# have. In three loops, code could tell three kinds of waiting requests apart, and the lemmas run it
# with two.
WAYS = {"sound": 96, "documented": 96, "2.1.2": 91, "2.5.2": 123}
WAYS_OUTSIDE = 7
MORE_WAYS = 2
BLOCKS = many(HIDDEN)
FIELDS: dict[tuple[type, str], Kind] = {
    (SpyreModel, "config"): record(SpyreConfig),
    (Sequence, "content"): HIDDEN,
    (Sequence, "blocks"): BLOCKS,
    (Forward, "slot_blocks"): by_id(BLOCKS),
    (State, "pool"): HIDDEN,
    **{(OwnRequest, name): NUMBER for name in ("prompt", "computed", "remaining", "tkv")},
    (Request, "prompt"): HIDDEN,
    (Request, "prompt_len"): NUMBER,
    (Request, "tokens_to_emit"): NUMBER,
}
# What the proof replaces, or assumes: that the pool only hands out blocks (`argument.md`).
ASSUMED = {
    "spyre.scheduler.observe": HIDDEN,
    "spyre.documented.written": BLOCKS,
    "spyre.blocks.prefix_hit": BLOCKS,
    "spyre.blocks.hold": row(record(Sequence), HIDDEN),
    "spyre.blocks.release": HIDDEN,
    "spyre.blocks.fits_pool": TRUTH,
    "spyre.release_2_1_2.fits_prompt": TRUTH,
    "pool.touch": HIDDEN,
}
# Expressions that other lemmas are about. No proven formula walks to the end.
TO_THE_END = "all((batch * tkv <= limit for batch, tkv in enumerate(all_requests, 1)))"
TERM = "term({}, tkv, prompt, block)"  # a formula of the user's own
EXPRESSIONS = {
    ("spyre.volumetric.by_own_term.<locals>.newcomer", TERM.format("own")): NUMBER,
    ("spyre.volumetric.by_own_term.<locals>.member", TERM.format("other")): NUMBER,
    ("spyre.volumetric.accepts", TO_THE_END): TRUTH,
    ("spyre.peak.next_below", "offsets[bisect_left(offsets, turn) - 1]"): NUMBER,
    ("spyre.peak.next_above", "offsets[bisect_left(offsets, turn) % len(offsets)]"): NUMBER,
}


def obligations(revision: Revision, check: Check, block: int, chunk: int) -> list[Obligation]:
    """Return the lemmas for a revision with this volumetric check. `block` and `chunk` are in
    tokens."""
    revision = replace(revision, volume_check=check)
    return [
        code_does_only_what_is_defined(revision),
        walk_goes_on_as_with_the_rest(),
        leaving_only_removes(StepConfiguration(revision, block=block, chunk=chunk)),
        each_turn_counts_its_request(block),
    ]


def follow(revision: Revision, carried: Collection[str]) -> Definitions:
    """Follow the code of the model in which a revision decides (`smt.defined`).

    Raises: UndecidedError: the code does something that the proof does not define.
    """
    if vars(peak)["bisect_left"] is not bisect_left:
        raise UndecidedError("uses a bisect_left that is not Python's")
    fields = {**FIELDS, (SpyreModel, "revision"): known(revision)}
    modules = [module.__name__ for module in MODULES]
    free = ("blocks", "published")
    hidden = (*Pool._fields, *Names._fields, *Sequence.__struct_fields__)
    defined = Definitions(fields, ASSUMED, EXPRESSIONS, modules, carried, free, hidden, COUNTS_DOWN)
    model, state = record(SpyreModel), record(State)
    calls = {
        SpyreModel.refusal: (record(Request),),
        SpyreModel.arrive: (state, record(Request)),
        SpyreModel.abort: (state, NAME),
        SpyreModel.step: (state, many(NAME)),
    }
    for function, given in calls.items():
        _, _, ways = defined.call(function, model, *given)
        known_ways = WAYS[revision.name] if function is SpyreModel.step else WAYS_OUTSIDE
        if ways > known_ways + MORE_WAYS:
            raise UndecidedError(
                f"goes through lists, sets variables in loops and adds items to lists {ways} times "
                f"in {function.__name__}, and the proof allows {known_ways + MORE_WAYS}: with "
                "more, it could count requests"
            )
    return defined


@lemma(
    "The code of the step and of the checks does only what the proof defines on symbols, and its "
    "loops carry nothing from one request to the next, except the pool, and values for which "
    "another lemma proves the induction step."
)
def code_does_only_what_is_defined(revision: Revision, less: int) -> list[Any]:
    try:
        follow(revision, CARRIES_POOL if less else CARRIES_POOL | BY_INDUCTION)
    except UndecidedError:
        if not less:
            raise
        return [z3.BoolVal(True)]
    return [z3.BoolVal(False)]


@lemma(
    "If the walk passes a request, it goes on as it would with the remaining ones alone, however "
    "many these are."
)
def walk_goes_on_as_with_the_rest(more: int) -> list[Any]:
    numbers = Numbers()
    own, limit, first, second = (
        length(numbers, name) for name in ("own", "limit", "first", "second")
    )
    count = length(numbers, "members", 2)
    numbers.facts.append(first <= second)

    def turns(run: SymbolicRun, terms: list[Any], many: Any) -> list[tuple[Any, ...]]:
        compared = list[tuple[Any, ...]]()

        def answer_at(*given: Any) -> bool | None:
            compared.append(tuple(map(bare, given)))
            return None if len(compared) < len(terms) else True

        decoding = Prefix([run.number(term) for term in terms], run.number(many))
        projection = volumetric.Projection(run.number(own), cast(list[int], decoding))
        try:
            with on_symbols(volumetric), stubs(volumetric, answer_at=answer_at):
                if not volumetric.accepts(projection, run.number(limit)):
                    raise AssertionError("the last answer was yes")
        except BeyondPrefixError:
            raise UndecidedError(LOOKS_AHEAD) from None
        return compared

    def code(run: SymbolicRun) -> Any:
        return turns(run, [first, second], count), turns(run, [second], count - 1)

    def same(result: Any) -> Any:
        both, rest = result
        if (len(both), len(rest)) != (2, 1):  # it answers without having asked
            return z3.BoolVal(False)
        pairs = zip(both[1], rest[0], strict=True)
        return z3.And([value == other + more for value, other in pairs])

    return holds_on(numbers, paths(numbers, code, quick=True), same)


@lemma("Removing an ended request changes neither the other requests nor the tkvs.")
def leaving_only_removes(configuration: StepConfiguration, more: int) -> list[Any]:
    """Claim, for one iteration of the loop in `scheduler.complete` and any state, that a request
    that leaves is only removed."""
    step, revision = Step(configuration, MANY), configuration.revision
    turn = body_of(scheduler, "complete")

    def code(run: SymbolicRun) -> Any:
        config = step.config(run, any_switches=True)
        before, claims = step.within(run, step.state(run)), list[Any]()
        for request in before.running:
            given = {"config": config, "revision": revision, "state": before, "request": request}
            with (
                on_symbols(*MODULES),
                stubs(blocks, release=lambda config, revision, state, request: state.pool),
            ):
                after = turn(**given)["state"]
            left = [other for other in before.running if other.id != request.id]
            same = len(after.running) == len(left) and all(
                other is kept for other, kept in zip(left, after.running, strict=True)
            )
            untouched = all(
                getattr(after, name) is getattr(before, name)
                for name in before.__struct_fields__
                if name not in ("running", "tkv")
            )
            claims += [same, untouched, bare(after.tkv) == bare(before.tkv) + more]
        return z3.And(claims)

    return holds_on(step.numbers, paths(step.numbers, code, quick=True), lambda claim: claim)


@lemma("After each request that is checked, all requests kept so far fit together.")
def kept_requests_fit_after_each_turn(all_asked: int) -> list[Any]:
    """Claim that the requests kept by `settled` fit together, whichever batches fit.

    The second of the three requests represents any number. So the last turn is the turn of a
    request after any number of others, any of which may have been kept.

    If `all_asked` is 1, make the guard's claim instead, which must fail: it claims that the
    requests that `settled` pauses fit as well.
    """
    numbers = Numbers()
    more = length(numbers, "more", 0)

    def code(run: SymbolicRun) -> Any:
        answers: list[tuple[list[Any], Any]] = []

        def fits(batch: list[Sequence]) -> bool:
            answers.append((as_compared(batch), z3.Bool(f"fits {len(answers)}")))
            return run.answer(answers[-1][1])

        first, second, last = (decoding(run, name) for name in ("first", "second", "last"))
        ordered = [first, several(second, run.number(more)), last]
        with on_symbols(release_2_5_2):
            stay, paused = release_2_5_2.settled(ordered, fits)
        return as_compared([*stay, *(paused if all_asked else [])]), answers

    def fit_together(result: Any) -> Any:
        stay, answers = result
        answers_about_kept = [answer for batch, answer in answers if batch == stay]
        return z3.Or(answers_about_kept) if stay else z3.BoolVal(True)

    return holds_on(numbers, paths(numbers, code), fit_together)


def decoding(run: SymbolicRun, name: str) -> Sequence:
    lengths = {field: run.number(z3.Int(f"{field} of {name}")) for field in ("prompt", "computed")}
    return any_request(run, name, **lengths)


def as_compared(batch: list[Sequence]) -> list[tuple[str, int]]:
    """Return the ids of requests, and the numbers of tokens that they have computed."""
    return [(plain_id(request.id), bare(request.computed).get_id()) for request in batch]


@lemma(
    "Each turn of the check adds one request to the earlier ones, however many these are, and "
    "compares all of them with the largest volume if the newcomer is still active when that "
    "request ends."
)
def each_turn_counts_its_request(block: int, more: int) -> list[Any]:
    """Claim, for one iteration of the loop in `peak.largest_volume` and any values of its
    variables, that the iteration counts its request."""
    numbers = Numbers()
    longest, before, answer = (length(numbers, name, 0) for name in ("longest", "peak", "answer"))
    tokens, ends, left = (length(numbers, name, 0) for name in ("tokens", "ends", "left"))
    count = length(numbers, "offsets", 0)
    offset = numbers.split(tokens, block, None)[1]
    turn = body_of(peak, "largest_volume")

    def code(run: SymbolicRun) -> Any:
        offsets, inserted, asked = SymbolicLength(run.number(count)), list[Any](), list[Any]()

        def insort(into: Any, added: Any) -> None:
            if into is not offsets:
                raise AssertionError(into)
            inserted.append(bare(added))
            offsets.length = offsets.length + 1

        def largest(*given: Any) -> Any:
            asked.append((bare(given[0]), given[1] is offsets, bare(given[2]), given[3] == block))
            return run.number(answer)

        newcomer = volumetric.Newcomer(run.number(length(numbers, "prompt")), run.number(left + 1))
        with on_symbols(peak), stubs(peak, insort=insort):
            after = turn(
                longest=run.number(longest),
                peak=run.number(before),
                offsets=offsets,
                tokens=run.number(tokens),
                ends=run.number(ends),
                newcomer=newcomer,
                largest=largest,
                block_size=block,
            )
        return bare(after["longest"]), bare(after["peak"]), inserted, asked, bare(offsets.length)

    def right(result: Any) -> Any:
        longest_now, peak_now, inserted, asked, offsets_now = result
        if len(inserted) != 1:
            return z3.BoolVal(False)
        due = z3.And(ends > 0, ends <= left)
        largest_now = z3.If(tokens > longest, tokens, longest)
        volume = (count + 1) * answer
        compared = z3.If(volume > before, volume, before)
        return z3.And(
            longest_now == largest_now + more,
            inserted[0] == offset,
            offsets_now == count + 1,
            due == z3.BoolVal(bool(asked)),
            peak_now == (compared if asked else before),
            *(
                z3.And(most == longest_now, own, at == ends, whole)
                for most, own, at, whole in asked
            ),
        )

    return holds_on(numbers, paths(numbers, code, quick=True), right)
