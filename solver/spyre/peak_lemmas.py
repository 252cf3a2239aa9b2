"""The checks of `model.spyre.peak` guarantee the limit, and the exact check refuses no safe
request.

Suppose that a newcomer joins a batch, and that no other request joins. The end of a request is its
last step; the request is active up to and including that step.

1. `batch_is_constant_until_next_end`: the requests active in a step are those active at the next
   end. So the batch is constant between two ends.
2. The rounded check: up to an end, no tkv exceeds the blocks of the longest request that is active
   at that end (`shorter_request_stays_within_blocks`, `tkv_ends_within_widest_blocks`). So batch x
   these blocks is a bound for every step.
3. The exact check: let k be a step, and e the next end. If no request fills a block in steps k to
   e-1, none takes another block (`no_full_block_no_new_block`). The widths then stay the same, the
   tkv grows, and it is largest at e. Otherwise, let f be the last step in which a request fills a
   block. The tkv at f is the end of the widest request's blocks (`full_request_ends_with_widest`),
   which is no less than the tkv at k (`shorter_request_stays_within_blocks`). So the volume at k is
   at most the larger of the volumes at e and f.
4. `offset_counts_steps_since_fill`: take the active request with the smallest offset at e. The
   number of steps from f to e is the number of its tokens beyond whole blocks.
5. `lone_newcomer_must_fit`, `check_counts_longest_filled_blocks`, `no_tkv_exceeds_check` and
   `check_value_is_reached` run the model's code. Three lemmas run its loops at small sizes: at each
   end, the code compares all active requests with the limit (`check_compares_each_end`); it finds
   the two offsets nearest to a position (`nearest_offsets_are_found`); and it uses these
   (`check_uses_nearest_offsets`).
6. The rest of the argument, after the newcomer has left and by induction over admissions, is that
   for a formula (`argument.md`, "The step").
7. Both volumes are reached: at e by the active requests, and at f by these and perhaps others,
   whose tkv is no lower (`leaving_raises_no_tkv`, `check_value_is_reached`). So every newcomer that
   the exact check refuses could exceed the limit.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import peak
from ...model.spyre.volumetric import Decoding, Newcomer
from ..smt.execution import Path, SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import goes_first, length_of, on_symbols
from .admission_lemmas import BLOCK, several
from .formula_lemmas import (
    accepted_request_fits_alone,
    decode_step_adds_one_token,
    fewer_requests_still_fit,
    leaving_raises_no_tkv,
    tkv_ends_within_widest_blocks,
)
from .symbolic_admission import Lengths, blocks, length, lengths_of, make_numbers, own_tkv, round_up

MANY = 4  # the largest number of decoding requests in a check; the last represents any number
LARGE = 8  # the number of decoding requests beside a newcomer that outlives them all
ENDS = (1, 2, 3, MANY, LARGE)


def obligations(check: str, block: int | None = 64) -> list[Obligation]:
    lengths = lengths_of(block)
    both = [
        batch_is_constant_until_next_end(),
        shorter_request_stays_within_blocks(lengths),
        tkv_ends_within_widest_blocks(lengths),
        accepted_request_fits_alone(),
        leaving_raises_no_tkv(lengths),
        fewer_requests_still_fit(),
        decode_step_adds_one_token(),
    ]
    if check == "rounded":
        return both
    return [
        *both,
        no_full_block_no_new_block(lengths),
        full_request_ends_with_widest(lengths),
        offset_counts_steps_since_fill(lengths),
    ]


def loops(check: str, block: int = BLOCK) -> list[Obligation]:
    walked = [check_compares_each_end(check, size, block) for size in ENDS]
    if check == "rounded":
        return walked
    return [
        *walked,
        nearest_offsets_are_found(block),
        check_uses_nearest_offsets(block),
    ]


def code(check: str, block: int = BLOCK) -> list[Obligation]:
    if check == "rounded":
        return [lone_newcomer_must_fit(check, block), check_counts_longest_filled_blocks(block)]
    return [
        lone_newcomer_must_fit(check, block),
        no_tkv_exceeds_check(block),
        check_value_is_reached(block),
    ]


@lemma("A request is active in a step if and only if it is active at the next end.")
def batch_is_constant_until_next_end(late: int) -> list[Any]:
    numbers = Numbers()
    end = length(numbers, "end", 0)
    step, following = length(numbers, "step"), length(numbers, "following")
    numbers.facts += [following >= step, z3.Implies(end >= step, end >= following)]
    return negated(numbers, (end >= step) == (end >= following + late))


@lemma(
    "A request that is at most as long as another never exceeds the other's blocks, now or later."
)
def shorter_request_stays_within_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, longest, step, later = (
        length(numbers, name) for name in ("own", "longest", "step", "later")
    )
    numbers.facts += [own <= longest, step <= later]
    reached = round_up(numbers, lengths, own + step)
    return negated(numbers, reached <= round_up(numbers, lengths, longest + later) - less)


@lemma("A request that fills no block takes no new one.")
def no_full_block_no_new_block(lengths: Lengths, more: int) -> list[Any]:
    """Claim that over any number of steps, a request takes no new block unless it fills a block
    before the last of these steps."""
    numbers = make_numbers(lengths)
    tokens, steps = length(numbers, "tokens"), length(numbers, "steps", 0)
    held = blocks(numbers, lengths, tokens)
    numbers.facts.append(tokens + steps <= held * lengths.block + more)
    return negated(numbers, blocks(numbers, lengths, tokens + steps) == held)


@lemma("The tkv of a request that has filled its blocks is the end of the widest request's blocks.")
def full_request_ends_with_widest(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    held = blocks(numbers, lengths, own)
    numbers.facts += [own == held * lengths.block, widest >= held]
    reached = own_tkv(numbers, lengths, own, widest)
    return negated(numbers, reached == widest * lengths.block - less)


@lemma("A request with n tokens beyond whole blocks last filled a block n steps ago.")
def offset_counts_steps_since_fill(lengths: Lengths, less: int) -> list[Any]:
    """Claim that the offset counts the steps since the request last filled a block: `back` steps
    ago it had `tokens` tokens, and all its blocks were full."""
    numbers = make_numbers(lengths)
    tokens, since = length(numbers, "tokens"), length(numbers, "since", 0)
    whole, back = numbers.split(tokens, lengths.block, None)
    numbers.facts.append(since < back + less)
    filled = whole * lengths.block
    beyond = z3.And(tokens - since > filled, tokens - since < filled + lengths.block)
    return negated(numbers, z3.And(tokens - back == filled, beyond))


@lemma("A lone newcomer is refused if it can exceed the limit.")
def lone_newcomer_must_fit(check: str, block: int, more: int) -> list[Any]:
    numbers = Numbers()
    limit, prompt, step = (length(numbers, name) for name in ("limit", "prompt", "step"))
    tokens = length(numbers, "tokens", 2)

    def code(run: SymbolicRun) -> Any:
        newcomer = Newcomer(run.number(prompt), run.number(tokens))
        return peak.CHECKS[check]([], newcomer, block, run.number(limit), 0)

    taken = list(paths(numbers, code))
    numbers.facts.append(step < tokens)
    within = prompt + step + more * block <= limit
    return holds_on(numbers, taken, lambda accepted: z3.Or(z3.BoolVal(not accepted), within))


@lemma(
    "At each end, the check compares all active requests, the newcomer and the decoding ones "
    "({size}), with the limit, and refuses only for a volume of active requests.",
    name="check_compares_each_end_{size}",
)
def check_compares_each_end(check: str, size: int, block: int, more: int) -> list[Any]:
    """Claim that the code compares the active requests at each end with the limit, whatever
    `largest_tkv` and `filled_blocks` return. With three or more requests, one order represents all,
    because the code sorts them."""
    numbers = Numbers()
    tokens = [length(numbers, "tokens") for _ in range(size + 1)]
    ends = [length(numbers, "ends", 0) for _ in range(size + 1)]
    answers = [length(numbers, "answer") for _ in range(size + 1)]
    limit, more_members = length(numbers, "limit"), length(numbers, "more members", 0)
    offsets_of = [numbers.split(has, block, None)[1] for has in tokens]
    if size > 2:
        given = zip(ends[1:], tokens[1:], strict=True)
        numbers.facts += [z3.Not(goes_first(*pair)) for pair in pairwise(given)]
    if size == LARGE:
        numbers.facts.append(ends[0] > ends[1])

    def code(run: SymbolicRun) -> Any:
        calls: list[tuple[Any, list[Any], Any, Any]] = []
        inserted: list[Any] = []

        def descending(rows: list[tuple[Any, ...]], *, reverse: bool) -> list[tuple[Any, ...]]:
            ordered: list[tuple[Any, ...]] = []
            for row in rows:
                at = len(ordered)
                while at and run.answer(goes_first(ordered[at - 1], row)):
                    at -= 1
                ordered.insert(at, row)
            return ordered if reverse else ordered[::-1]

        def insort(offsets: list[Any], offset: Any) -> None:
            offsets.append(offset)
            inserted.append(offset)

        def largest_tkv(longest: Any, offsets: list[Any], at: Any, _: int) -> Any:
            # Only offsets that `insort` has inserted are sorted.
            ordered = [offset for offset in offsets if any(offset is other for other in inserted)]
            numbers_of = [bare(number) for number in ordered]
            calls.append((bare(longest), numbers_of, bare(at), bare(length_of(ordered))))
            return run.number(answers[len(calls) - 1])

        members = [
            Decoding(run.number(has), run.number(steps), 0)
            for has, steps in zip(tokens[1:], ends[1:], strict=True)
        ]
        if size == MANY:
            members[-1] = several(members[-1], run.number(more_members))
        newcomer = Newcomer(run.number(tokens[0]), run.number(ends[0] + 1))
        with (
            on_symbols(peak),
            stubs(
                peak,
                sorted=descending,
                insort=insort,
                largest_tkv=largest_tkv,
                filled_blocks=largest_tkv,
            ),
        ):
            most = run.number(limit)
            return bool(peak.CHECKS[check](members, newcomer, block, most, 0)), calls

    def right(result: Any) -> Any:
        accepted, calls = result
        beyond = [call[3] * answers[at] > limit for at, call in enumerate(calls)]
        counted = [
            numbers.count([end >= call[2] for end in ends])
            + z3.If(z3.And(size == MANY, ends[-1] >= call[2]), more_members, 0)
            for call in calls
        ]
        if not accepted:
            counts = zip(calls, counted, strict=True)
            no_more = [number <= count - more for (*_, number), count in counts]
            among = [
                z3.And(over, is_of_active(call)) for call, over in zip(calls, beyond, strict=True)
            ]
            return z3.And(z3.Or(among), *no_more)
        compared = [
            z3.Implies(
                z3.And(end > 0, end <= ends[0]),
                z3.Or(
                    [
                        z3.And(is_about(call, end), z3.Not(over), count == call[3] + more)
                        for call, over, count in zip(calls, beyond, counted, strict=True)
                    ]
                ),
            )
            for end in ends
        ]
        return z3.And(compared)

    def is_of_active(call: tuple[Any, list[Any], Any, Any]) -> Any:
        """Return whether the longest request and the offsets in a call belong to requests that are
        active at the end that the call is about."""
        longest, offsets, call_at, _ = call
        active = [end >= call_at for end in ends]

        def some(number: Any, numbers_of: list[Any]) -> Any:
            same = [number == other for other in numbers_of]
            return z3.Or([z3.And(*both) for both in zip(active, same, strict=True)])

        due = z3.Or([z3.And(call_at == end, end > 0, end <= ends[0]) for end in ends])
        return z3.And(due, some(longest, tokens), *(some(each, offsets_of) for each in offsets))

    def is_about(call: tuple[Any, list[Any], Any, Any], end: Any) -> Any:
        longest, offsets, call_at, _ = call
        active = [other >= end for other in ends]
        return z3.And(
            call_at == end,
            z3.Or(
                [
                    z3.And(runs, longest == own_tokens)
                    for runs, own_tokens in zip(active, tokens, strict=True)
                ]
            ),
            *(
                z3.Implies(
                    runs,
                    z3.And(
                        longest >= own_tokens, z3.Or([offset == own_offset for offset in offsets])
                    ),
                )
                for runs, own_tokens, own_offset in zip(active, tokens, offsets_of, strict=True)
            ),
        )

    return holds_on(numbers, paths(numbers, code, quick=True), right)


class Offsets(SymbolicLength):
    """Any number of offsets in ascending order. `asked` collects the offsets that the code reads,
    with their positions."""

    def __init__(self, run: SymbolicRun, count: Any, block: int) -> None:
        super().__init__(run.number(count))
        self.run, self.count, self.block = run, count, block
        self.asked: list[tuple[Any, Any]] = []

    def __getitem__(self, place: Any) -> Any:
        at = bare(place)
        at = z3.If(at < 0, self.count + at, at)
        offset = z3.Function("offset", z3.IntSort(), z3.IntSort())(at)
        self.asked.append((at, offset))
        return self.run.number(offset)

    def facts(self) -> Iterator[Any]:
        for at, offset in self.asked:
            yield z3.And(offset >= 0, offset < self.block)
            yield from (z3.Implies(at <= place, offset <= other) for place, other in self.asked)


@lemma("The check finds the nearest of any number of offsets below and above a position.")
def nearest_offsets_are_found(block: int, more: int) -> list[Any]:
    """Claim that the offsets found below and above the position are the nearest ones, wherever the
    other offsets are in the list."""
    numbers = Numbers()
    count, turn = length(numbers, "offsets"), numbers.fresh("turn", 0, block - 1)
    place = numbers.fresh("place", 0, count - 1)

    def code(run: SymbolicRun) -> Any:
        given = Offsets(run, count, block)
        found, at = given[place], run.number(turn)
        split = numbers.fresh("split", 0, count)

        def bisect_left(offsets: Any, sought: Any) -> Any:
            """Return an insertion point, as Python's documentation defines it."""
            if offsets is not given:
                raise AssertionError(offsets)
            return run.number(split)

        with on_symbols(peak), stubs(peak, bisect_left=bisect_left):
            offsets = cast(list[int], given)
            chosen = [bare(peak.next_below(offsets, at)), bare(peak.next_above(offsets, at))]
        apart = [(offset < turn) == (place < split) for place, offset in given.asked]
        return bare(found), chosen, z3.And(*given.facts(), *apart), given.asked[1:]

    def right(result: Any) -> Any:
        offset, (below, above), facts, asked = result
        sides = z3.And(_below(turn, below, offset), _above(turn, above + more, offset))
        are_offsets = [
            z3.Or([z3.And(at >= 0, at < count, chosen == other) for at, other in asked])
            for chosen in (below, above)
        ]
        return z3.Implies(facts, z3.And(sides, *are_offsets))

    return holds_on(numbers, paths(numbers, code), right)


@lemma("For each end, the check uses the two offsets nearest to its position.")
def check_uses_nearest_offsets(block: int, more: int) -> list[Any]:
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")
    below, above = (numbers.fresh(name, 0, block - 1) for name in ("below", "above"))

    def code(run: SymbolicRun) -> Any:
        given, asked = Offsets(run, length(numbers, "offsets"), block), list[Any]()

        def finds(number: Any) -> Callable[..., Any]:
            def find(offsets: Any, turn: Any) -> Any:
                asked.append((offsets is given, bare(turn)))
                return run.number(number)

            return find

        most, at = run.number(longest), run.number(ends)
        with stubs(peak, next_below=finds(below), next_above=finds(above)):
            answer = peak.largest_tkv(most, cast(list[int], given), at, block)
        turns = [bare((1 - at) % block), bare(-at % block)]
        parts = peak.largest_of_two(most, run.number(below), run.number(above), at, block)
        return bare(answer), bare(parts), asked, turns

    def same(result: Any) -> Any:
        answer, parts, asked, turns = result
        right = [z3.And(own, at == turn) for (own, at), turn in zip(asked, turns, strict=True)]
        return z3.And(answer == parts + more, *right)

    return holds_on(numbers, paths(numbers, code), same)


def _below(turn: Any, below: Any, offset: Any) -> Any:
    largest_of_all = z3.And(offset >= turn, offset <= below)
    return z3.If(below >= turn, largest_of_all, z3.Or(offset >= turn, offset <= below))


def _above(turn: Any, above: Any, offset: Any) -> Any:
    smallest_of_all = z3.And(offset < turn, offset >= above)
    return z3.If(above < turn, smallest_of_all, z3.Or(offset < turn, offset >= above))


class _ToTheEnd(NamedTuple):
    """Any number of requests that all end in the same step.

    Attributes:
        longest: the tokens of the longest request.
        offset: the offset of any of them.
        below, above: the two offsets that the code uses.
        ends: the number of steps until all requests end.
        taken: the paths of the check's code.
    """

    numbers: Numbers
    longest: Any
    offset: Any
    below: Any
    above: Any
    ends: Any
    taken: list[Path]
    block: int

    @classmethod
    def make(cls, block: int) -> "_ToTheEnd":
        """Return arbitrary requests that end in the same step, and assume
        `nearest_offsets_are_found` for their offsets and the longest request."""
        numbers = Numbers()
        longest, ends = length(numbers, "longest"), length(numbers, "ends")
        offset, below, above = (
            numbers.fresh(name, 0, block - 1) for name in ("offset", "below", "above")
        )
        own = numbers.split(longest, block, None)[1]
        first, then = (
            numbers.split(turn, block, None, signed=True)[1] for turn in (1 - ends, -ends)
        )
        for number in (offset, own, below, above):
            numbers.facts += [_below(first, below, number), _above(then, above, number)]

        def code(run: SymbolicRun) -> Any:
            most, lower, upper, at = (
                run.number(number) for number in (longest, below, above, ends)
            )
            return peak.largest_of_two(most, lower, upper, at, block)

        taken = list(paths(numbers, code))
        return cls(numbers, longest, offset, below, above, ends, taken, block)

    def tkv(self, offset: Any, step: Any) -> Any:
        """Return the tkv, in a step, of a request with this offset."""
        width = blocks(self.numbers, Lengths(self.block, None), self.longest + step) - 1
        return width * self.block + self.numbers.split(offset + step - 1, self.block, None)[1] + 1

    def says(self, claim: Callable[[Any], Any]) -> list[Any]:
        self.numbers.tell_quotients(self.block)
        return holds_on(self.numbers, self.taken, claim)


@lemma("Until all requests end, no request's tkv exceeds the check's value.")
def no_tkv_exceeds_check(block: int, less: int) -> list[Any]:
    batch = _ToTheEnd.make(block)
    step = length(batch.numbers, "step")
    batch.numbers.facts.append(step <= batch.ends)
    tkv = batch.tkv(batch.offset, step)
    return batch.says(lambda most: tkv <= bare(most) - less)


@lemma("The check's value is the tkv of some request in some step until all requests end.")
def check_value_is_reached(block: int, more: int) -> list[Any]:
    """Claim that some step reaches the value that the check computes: the last step, or the last
    step in which a block was filled."""
    batch = _ToTheEnd.make(block)
    _, then = batch.numbers.split(-batch.ends, block, None, signed=True)
    _, back = batch.numbers.split(batch.above - then, block, None, signed=True)
    before = z3.If(batch.ends > back, batch.ends - back, batch.ends)
    last, filled = batch.tkv(batch.below, batch.ends), batch.tkv(batch.above, before)
    return batch.says(lambda most: z3.Or(bare(most) + more == last, bare(most) + more == filled))


@lemma("At each end, the check counts all blocks of the longest request as full.")
def check_counts_longest_filled_blocks(block: int, less: int) -> list[Any]:
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")

    def code(run: SymbolicRun) -> Any:
        return peak.filled_blocks(run.number(longest), [], run.number(ends), block)

    due = round_up(numbers, Lengths(block, None), longest + ends)
    return holds_on(numbers, paths(numbers, code), lambda most: most - less >= due)
