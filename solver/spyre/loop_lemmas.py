"""Why a few requests stand for any number: loops over requests treat all of them alike.

`loops_treat_requests_alike` reads the code of the step and of the check (`smt.loops`). It shows
that a loop does the same for each request, remembers none of the earlier ones, and does not
distinguish requests by their position. So if a lemma holds for each of a few requests, in any
state, it holds for each of any number.

Some loops do carry a value from one request to the next. For each of these, another lemma proves
the induction step:

- `volumetric.accepts` counts the requests still to visit: `walk_goes_on_as_with_the_rest`. So after
  the walk has passed a request, its answer is the answer for the remaining ones alone.
- `scheduler.complete` removes ended requests one by one, and `scheduler.step` aborted ones:
  `leaving_only_removes`, `abort_only_removes_5`.
- `release_2_5_2.settled` collects the requests that keep decoding:
  `kept_requests_fit_after_each_turn`.
- `peak.largest_volume`: `each_turn_counts_its_request`. So after any number of turns, `longest` is
  the longest request so far, and the offsets are those of the requests so far.

`forward.compute_decode` carries the pool, which no lemma about the limit reads.
"""

from collections.abc import Iterator
from typing import Any, cast

import z3

from ...model.spyre import blocks, peak, scheduler, volumetric
from ...model.spyre.revision import Revision
from ..smt.execution import Prefix, SymbolicLength, SymbolicRun, bare, holds_on, paths, stubbed
from ..smt.loops import body_of, findings, source_of
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from .symbolic_admission import MANY, length
from .symbolic_state import StepConfiguration
from .symbolic_step import MODULES, Step

BY_INDUCTION = {
    "volumetric.accepts to_come",
    "scheduler.complete state",
    "scheduler.step state",
    "release_2_5_2.settled kept",
    *(f"peak.largest_volume {name}" for name in ("longest", "offsets", "peak")),
}
SHOWN = ("paused", "reserved_blocks")
# Findings in code that no lemma about the limit runs, or that other lemmas are about.
APART = {
    "forward.compute_decode pool",  # stubbed: `blocks.hold`
    "documented.written [position - pad]",  # stubbed
    "documented.written range()",
    "volumetric.accepts enumerate()",  # only for a walk to the end, which no proven formula uses
    "volumetric.formula_named [1:]",  # reads a name
    "peak.next_below [bisect_left(offsets, turn) - 1]",  # `nearest_offsets_are_found`
    "peak.next_above [bisect_left(offsets, turn) % len(offsets)]",
    # texts for messages, and the input
    *(f"{name} joinedstr" for name in ("blocks.hold", "model.SpyreModel.refusal")),
    *(f"{name} joinedstr" for name in ("sequence.Sequence.known", "volumetric.formula_named")),
    *(f"config.{name} joinedstr" for name in ("check_pool", "read_config")),
    *(f"config.{name} revision != '2.5.2'" for name in ("check_pool", "read_config")),
    *("config.imports msgspec", "members.imports msgspec", "members..__replace__"),
    *("members.def _replace(self, **changes: Any) -> Se", "volumetric.formula_named int()"),
    *(
        "volumetric.formula_named FORMULAS",
        "volumetric.formula_named NAME",
        "members.ending QUEUES",
    ),
    *("model.admitting_by CHECKS", "model.make_model REVISIONS", "pool._without other != block"),
    *("members.ending getattr()", "members.ending hasattr()"),
    # the kind of a step, and the fields that a revision shows: texts, but not of a request
    *(f"scheduler.compute decision.kind == '{kind}'" for kind in ("prefill", "decode")),
    "release_2_1_2.decide decision.kind != 'prefill'",
    *(f"scheduler.observe '{field}' in revision.shows" for field in SHOWN),
    *(f"model.SpyreModel.options '{field}' in self.revision.shows" for field in SHOWN),
    # the pool, of which `argument.md` assumes that it does nothing but hand out blocks
    *("blocks.fits_pool sum()", "blocks.reserved promised", "pool.unheld sum()"),
    *("allocator.freed enumerate()", "allocator.publish_full range()", "pool.take range()"),
    *(f"pool.take {of}" for of in ("[:count - len(taken)]", "[:count]", "[count:]")),
    *("pool.take [len(evicted):]", "pool._without kept", "pool.publish cached"),
    *("pool.cached_blocks break", "pool.cached_blocks range()", "pool.give_back [1]"),
    *("pool.give_back entry[1] is not None", "pool.prefix break", "pool.prefix tokens"),
    "pool.prefix changes tokens",
}


def obligations(revision: Revision, block: int) -> list[Obligation]:
    return [
        loops_treat_requests_alike(),
        walk_goes_on_as_with_the_rest(),
        leaving_only_removes(revision),
        each_turn_counts_its_request(block),
    ]


def told_apart() -> Iterator[str]:
    """Yield every finding of `smt.loops` about the loops of the step and of the checks."""
    for module in MODULES:
        name = module.__name__.rpartition(".")[2]
        yield from (f"{name}.{found}" for found in findings(source_of(module)))


@lemma(
    "The text of the loops over requests treats each request alike, whatever came before it, "
    "except where another lemma proves the induction step."
)
def loops_treat_requests_alike(less: int) -> list[Any]:
    known = APART if less else APART | BY_INDUCTION
    return [z3.BoolVal(not known.issuperset(told_apart()))]


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
        with on_symbols(volumetric), stubbed(volumetric, answer_at=answer_at):
            if not volumetric.accepts(projection, run.number(limit)):
                raise AssertionError("the last answer was yes")
        return compared

    def code(run: SymbolicRun) -> Any:
        _, after = turns(run, [first, second], count)
        [alone] = turns(run, [second], count - 1)
        return after, alone

    def same(result: Any) -> Any:
        pairs = zip(*result, strict=True)
        return z3.And([value == other + more for value, other in pairs])

    return holds_on(numbers, list(paths(numbers, code, quick=True)), same)


@lemma("Removing an ended request changes neither the other requests nor the tkvs.")
def leaving_only_removes(revision: Revision, more: int) -> list[Any]:
    """Claim this for one turn of the loop in `scheduler.complete`, in any state."""
    step = Step(StepConfiguration(revision), MANY)
    turn = body_of(scheduler, "complete")

    def code(run: SymbolicRun) -> Any:
        config, before, claims = step.config(run), step.state(run), list[Any]()
        for request in before.running:
            given = {"config": config, "revision": revision, "state": before, "request": request}
            with (
                on_symbols(*MODULES),
                stubbed(blocks, release=lambda config, revision, state, request: state.pool),
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

    return holds_on(step.numbers, list(paths(step.numbers, code, quick=True)), lambda claim: claim)


@lemma(
    "Each turn of the check adds one request to the earlier ones, however many these are, and "
    "compares all of them with the largest volume if the newcomer is active at its end."
)
def each_turn_counts_its_request(block: int, more: int) -> list[Any]:
    """Claim this for one turn of the loop in `peak.largest_volume`, from any values of its
    variables."""
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
        with on_symbols(peak), stubbed(peak, insort=insort):
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
        if len(inserted) != 1 or len(asked) > 1:
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

    return holds_on(numbers, list(paths(numbers, code, quick=True)), right)
