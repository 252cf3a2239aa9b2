"""The scheduler consults the formula as the argument needs it (`argument.md`, steps 1 and 5).

Nothing of the model is written a second time: its code runs on symbols (`smt.execution`). A
formula or a check is replaced by a stub of which nothing is known but what the lemmas say. One
symbolic member of the batch stands for all of them, the longest included.

Some revisions go by the batch as it is. Others go by the tkv that the last forward reported
(`release_2_1_2.current_tkv`), which may count requests that have left since. For those the lemmas
keep an invariant of the scheduler's state:

    Every member of the decode batch is no longer than the remembered tkv; or, with interleaving,
    the last step was a prefill and no chunk of another request runs now.

It holds in the empty state, and every step keeps it:

1. `decode_tkv_covers_every_member`: the tkv of a decode step covers every length in it, and each
   member has taken part in the last decode step or was prefilled since.
2. `chunk_tkv_covers_every_member`: what a chunk reports covers every member, and the prompt if the
   chunk ends it. This matters without interleaving, where one chunk may follow another.
3. `step_is_idle_only_if_none_decodes`: an idle step, which resets the tkv to 0, comes only while
   no request decodes.
4. A request that aborts or finishes only leaves the batch.

Where a request is admitted:

5. `formula_is_consulted_with_covering_tkv`: it joins by the formula's answer, and the formula gets
   a tkv that covers every member.
6. `prefill_is_uninterrupted`: without interleaving, in releases that consult the formula at the
   first chunk, no other step comes between a request's first chunk and its last.
7. `formula_is_consulted_at_last_chunk`: whatever prefix is cached, a chunk that ends the prompt
   was admitted as the last one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import documented, release_2_1_2, volumetric
from ...model.spyre.config import SpyreConfig
from ...model.spyre.revision import Revision
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Sequence as Request
from ...model.spyre.state import State
from ...model.spyre.volumetric import ByFormula, Projection
from ..smt.execution import Path, SymbolicRun, Truth, bare, paths
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation
from .symbolic_admission import Lengths, blocks, length, own_tkv

# Tokens. `walk_counts_every_request` holds for blocks of any size: no block has a part in it.
BLOCK = 64


def walk_counts_every_request(size: int) -> Obligation:
    return Obligation(
        f"walk_counts_every_request_{size}",
        f"The walk counts each decoding request ({size}), whatever its term.",
        partial(_walk_counts_every_request, size, 0),
        partial(_walk_counts_every_request, size, 1),
    )


def formula_sees_requests_as_they_are(size: int, *, by_check: bool = False) -> Obligation:
    return Obligation(
        f"{'check' if by_check else 'formula'}_sees_requests_as_they_are_{size}",
        f"The {'check' if by_check else 'formula'} is asked about the newcomer and the decoding "
        f"requests ({size}) as they are, and its answer is taken.",
        partial(_formula_sees_requests_as_they_are, by_check, size, 0),
        partial(_formula_sees_requests_as_they_are, by_check, size, 1),
    )


def holds_on(numbers: Numbers, taken: Sequence[Path], claim: Callable[[Any], Any]) -> list[Any]:
    wrong = [z3.And(*path.conditions, z3.Not(claim(path.result))) for path in taken]
    return [*numbers.facts, z3.Or(wrong)]


def fits_volume(
    run: SymbolicRun,
    limit: Any,
    members: list[Request],
    newcomer: Request,
    current: Any = 0,
    **by: Any,
) -> Any:
    """The model's own, by a formula or a check that is put in; `current`: the batch's tkv."""
    config = SpyreConfig(block_size=BLOCK, max_batch_tkv=cast(int, run.number(limit)))
    revision = replace(SOUND, **by)
    return documented.fits_volume(config, revision, current, members, newcomer)


def request(number: int, **more: Any) -> Request:
    """A request of the model; its other fields have no part in the lemma."""
    return Request(**{"id": str(number), "prompt": 1, "max_tokens": 1, "output_len": 1, **more})


def _walk_counts_every_request(size: int, beyond: int) -> list[Any]:
    """Any terms, limit and tkv: the m active fit m times, if every active term covers the tkv."""
    numbers = Numbers()
    limit, own, own_left, step, tkv = (
        length(numbers, name) for name in ("limit", "own", "own_left", "step", "tkv")
    )
    terms = [length(numbers, "term") for _ in range(size)]
    lefts = [length(numbers, "left") for _ in range(size)]

    def code(run: SymbolicRun) -> Any:
        def projects(*asked: Any) -> volumetric.Projection:
            return volumetric.Projection(
                cast(int, run.number(own)), [cast(int, run.number(term)) for term in terms]
            )

        members = [request(number) for number in range(size)]
        return fits_volume(run, limit, members, request(size), volume_check=ByFormula(projects))

    taken = list(paths(numbers, code))
    for term, left in zip(terms, lefts, strict=True):
        numbers.facts += [
            z3.Implies(lesser <= left, lower <= term)
            for lower, lesser in zip(terms, lefts, strict=True)
        ]
        numbers.facts.append(z3.Implies(left >= step, tkv <= term))
    active = [left >= step for left in lefts]
    numbers.facts += [own_left >= step, tkv <= own, z3.Or(active)]
    batch = 1 + numbers.count(active)
    within = z3.And(
        [z3.Implies(batch == m, m * (tkv + beyond) <= limit) for m in range(2, size + 2)]
    )
    return holds_on(numbers, taken, lambda accepted: z3.Or(z3.BoolVal(not accepted), within))


def _formula_sees_requests_as_they_are(by_check: bool, size: int, more: int) -> list[Any]:
    """Each request is asked about as it is; a formula is asked at the batch's tkv, and a check with
    the limit of the configuration, and its answer is what counts."""
    numbers, lengths = Numbers(), Lengths(BLOCK, None)
    computed, left = ([length(numbers, name) for _ in range(size)] for name in ("has", "left"))
    limit, prompt, tokens, tkv = (
        length(numbers, name) for name in ("limit", "prompt", "tokens", "tkv")
    )
    widest = numbers.largest([blocks(numbers, lengths, one) for one in computed])
    says = z3.Bool("says")

    def code(run: SymbolicRun) -> Any:
        asked: list[Any] = []

        def formula(at: Any, members: Any, joining: Any, block: Any) -> volumetric.Projection:
            asked.append(z3.And(bare(at) == tkv, as_they_are(members, joining, block)))
            return volumetric.Projection(cast(int, run.number(numbers.value(0))), [])

        def check(members: Any, joining: Any, block: Any, most: Any, _: Any) -> Any:
            asked.append(z3.And(bare(most) == limit, as_they_are(members, joining, block)))
            return Truth(run, says)

        members = [
            request(number, computed=run.number(has), max_tokens=run.number(rest + 1), generated=1)
            for number, (has, rest) in enumerate(zip(computed, left, strict=True))
        ]
        newcomer = request(size, prompt=run.number(prompt), max_tokens=run.number(tokens))
        by = {"volume_check": check if by_check else ByFormula(formula)}
        answer = bool(fits_volume(run, limit, members, newcomer, run.number(tkv), **by))
        return asked, answer

    def as_they_are(members: Any, joining: Any, block: Any) -> Any:
        if len(members) != size or block != BLOCK:
            return z3.BoolVal(False)
        return z3.And(
            bare(joining.prompt) == prompt,
            bare(joining.max_tokens) == tokens,
            *(
                z3.And(
                    bare(member.computed) == has,
                    bare(member.remaining) == rest + more,
                    bare(member.tkv) == own_tkv(numbers, lengths, has, widest),
                )
                for member, has, rest in zip(members, computed, left, strict=True)
            ),
        )

    def right(result: Any) -> Any:
        asked, answer = result
        if not by_check and not answer:  # a refusal in front of the formula lets nothing join
            return z3.BoolVal(True)
        if len(asked) != 1:
            return z3.BoolVal(False)
        return z3.And(asked[0], says == answer) if by_check else asked[0]

    return holds_on(numbers, list(paths(numbers, code)), right)


CHUNK = 512  # tokens


def checks_once(revision: Revision) -> bool:
    """Whether, without interleaving, the first chunk is held to the last-chunk constraints."""
    return revision.is_held_to_last_chunk is release_2_1_2.is_held_to_last_chunk


def obligations(revision: Revision, *, interleave: bool) -> list[Obligation]:
    """What has to be shown for a revision, in the argument's order; blocks of 64, chunks of 512."""
    names = ["formula_is_consulted_with_covering_tkv", "formula_is_consulted_at_last_chunk"]
    if checks_once(revision) and not interleave:
        names.insert(1, "prefill_is_uninterrupted")
    if revision.current_tkv is release_2_1_2.current_tkv:
        names = [
            "decode_tkv_covers_every_member",
            *["chunk_tkv_covers_every_member"] * (not interleave),
            "step_is_idle_only_if_none_decodes",
            *names,
        ]
    variant = SchedulerVariant(revision, interleave)
    return [
        Obligation(name, sentence, partial(lemma, variant, 0), partial(lemma, variant, 1))
        for name, (sentence, lemma) in LEMMAS.items()
        if name in names
    ]


class SchedulerVariant(NamedTuple):
    """What the lemmas are about."""

    revision: Revision
    interleave: bool


class Beside(NamedTuple):
    """A newcomer beside a member of the decode batch, in symbols: the member's tokens and those of
    its prompt, the newcomer's prompt and what of it is computed, the tkv that is remembered."""

    own: Any
    had: Any
    prompt: Any
    computed: Any
    remembered: Any
    was_prefill: Any
    slots: Any
    longest: Any
    tokens: Any

    @classmethod
    def make(cls, numbers: Numbers) -> "Beside":
        own, had, prompt = (length(numbers, name) for name in ("own", "had", "prompt"))
        computed, remembered = (length(numbers, name, 0) for name in ("computed", "remembered"))
        numbers.facts += [had <= own, computed < prompt]
        others = (length(numbers, name) for name in ("slots", "longest", "tokens"))
        return cls(own, had, prompt, computed, remembered, z3.Bool("was prefill"), *others)

    def state(self, run: SymbolicRun) -> State:
        """The scheduler's state: the newcomer waits until its first chunk, and then runs."""
        member, newcomer = (
            request(number, computed=run.number(has), prompt=run.number(of), max_tokens=left)
            for number, has, of, left in (
                (0, self.own, self.had, run.number(self.tokens)),
                (1, self.computed, self.prompt, 1),
            )
        )
        waits = bool(Truth(run, self.computed == 0))
        return State(
            waiting=(newcomer,) if waits else (),
            running=(member,) if waits else (newcomer, member),
            last_step_was_prefill=cast(bool, Truth(run, self.was_prefill)),
            tkv=cast(int, run.number(self.remembered)),
            runner_tkv=cast(int, run.number(self.remembered)),
        )

    def config(self, run: SymbolicRun, interleave: bool, limit: Any) -> SpyreConfig:
        """Any number of slots, any max_model_len."""
        return SpyreConfig(
            block_size=BLOCK,
            chunk_size=CHUNK,
            max_num_seqs=cast(int, run.number(self.slots)),
            max_model_len=cast(int, run.number(self.longest)),
            max_batch_tkv=limit,
            interleave=interleave,
            pausing=False,
        )


def _decode_tkv_covers_every_member(variant: SchedulerVariant, more: int) -> list[Any]:
    """Two stand for all: a member and the longest; more of them only have larger offsets."""
    numbers = Numbers()
    own, longest = length(numbers, "own"), length(numbers, "longest")

    def code(run: SymbolicRun) -> Any:
        return documented.max_tkv([cast(int, run.number(one)) for one in (own, longest)], BLOCK)

    return holds_on(numbers, list(paths(numbers, code)), lambda reached: reached >= own + more)


def _chunk_tkv_covers_every_member(variant: SchedulerVariant, more: int) -> list[Any]:
    """A chunk of a newcomer beside a member, or beside none."""
    numbers = Numbers()
    pair, ends, none_there = Beside.make(numbers), z3.Bool("ends"), z3.Bool("nothing decodes")
    numbers.facts.append(z3.Or(none_there, pair.own <= pair.remembered))

    def code(run: SymbolicRun) -> Any:
        config, state = pair.config(run, variant.interleave, 1), pair.state(run)
        newcomer = [*state.waiting, *state.running][0]
        alone = bool(Truth(run, none_there))
        if alone:
            state = state._replace(running=state.running[:-1])
        last = bool(Truth(run, ends))
        after = newcomer._replace(computed=newcomer.prompt) if last else newcomer
        running = (after, *state.decoding)
        reported = variant.revision.tkv_after_chunk(config, state, newcomer, running)
        return bare(reported), alone, last

    def covers(result: Any) -> Any:
        reported, alone, last = result
        lengths = [pair.own] * (not alone) + [pair.prompt] * last
        return z3.And([reported >= one + more for one in lengths])

    return holds_on(numbers, list(paths(numbers, code)), covers)


def _step_is_idle_only_if_none_decodes(variant: SchedulerVariant, gone: int) -> list[Any]:
    """`gone`: the member may have left, and no request may be there."""
    numbers = Numbers()
    pair, limit, none_runs = Beside.make(numbers), length(numbers, "limit"), z3.Bool("none_runs")
    numbers.facts.append(pair.own + 1 <= limit)  # alone it is within the limit, by the front door
    numbers.facts += [z3.Not(none_runs)] if not gone else []

    def code(run: SymbolicRun) -> Any:
        config = pair.config(run, variant.interleave, run.number(limit))
        state = State() if Truth(run, none_runs) else pair.state(run)
        _, decision = variant.revision.decide(config, variant.revision, state)
        return decision.kind

    return holds_on(numbers, list(paths(numbers, code)), lambda kind: z3.BoolVal(kind != "idle"))


def _formula_is_consulted_with_covering_tkv(variant: SchedulerVariant, more: int) -> list[Any]:
    """The next chunk of a newcomer, in a state that keeps the invariant. The formula that is put in
    says yes or no as it likes."""
    numbers = Numbers()
    pair, says = Beside.make(numbers), z3.Bool("says")
    apart = pair.was_prefill if variant.interleave else z3.BoolVal(False)
    numbers.facts.append(z3.Or(apart, pair.own <= pair.remembered))
    term = z3.If(says, numbers.value(1), numbers.value(2))  # twice that is at most 2, or is not

    def code(run: SymbolicRun) -> Any:
        asked: list[Any] = []

        def formula(at: Any, *_: Any) -> Projection:
            asked.append(z3.And(says, bare(at) >= pair.own + more))
            each = cast(int, run.number(term))
            return Projection(each, [each])

        config, state = pair.config(run, variant.interleave, 2), pair.state(run)
        newcomer = [*state.waiting, *state.running][0]
        revision = replace(variant.revision, volume_check=ByFormula(formula))
        goes = documented.may_prefill(config, revision, state, newcomer)
        if checks_once(variant.revision) and not variant.interleave:
            joins = bool(state.waiting)
        else:
            joins = bool(documented.is_last_chunk(newcomer.prompt, newcomer.computed, CHUNK))
        return bool(goes) and joins, asked

    def right(result: Any) -> Any:
        joins, asked = result
        once = asked[0] if len(asked) == 1 else z3.BoolVal(False)
        return z3.Or(z3.BoolVal(not joins), once)

    return holds_on(numbers, list(paths(numbers, code)), right)


def _prefill_is_uninterrupted(variant: SchedulerVariant, paused: int) -> list[Any]:
    """`paused`: another request may be paused."""
    numbers = Numbers()
    pair = Beside.make(numbers)
    numbers.facts.append(pair.computed >= 1)
    pauses = z3.Bool("pauses")
    numbers.facts += [z3.Not(pauses)] if not paused else []

    def code(run: SymbolicRun) -> Any:
        config, state = pair.config(run, variant.interleave, 2), pair.state(run)
        if Truth(run, pauses):
            state = state._replace(paused=(request(2),))
        _, decision = variant.revision.decide(config, variant.revision, state)
        return decision.kind == "prefill" and decision.members[0].id == "1"

    return holds_on(numbers, list(paths(numbers, code)), lambda goes_on: z3.BoolVal(goes_on))


def _formula_is_consulted_at_last_chunk(variant: SchedulerVariant, more: int) -> list[Any]:
    """Any number of tokens is computed or found, any of them found."""
    numbers = Numbers()
    prompt = length(numbers, "prompt")
    computed, found = (length(numbers, name, 0) for name in ("computed", "found"))
    numbers.facts += [found <= computed, computed < prompt]

    def code(run: SymbolicRun) -> Any:
        tokens, has = (cast(int, run.number(one)) for one in (prompt, computed))
        one = request(0, prompt=tokens, computed=has, prefix_hit=run.number(found))
        _, end = documented.next_chunk(tokens, has, CHUNK, BLOCK)
        config = SpyreConfig(block_size=BLOCK, chunk_size=CHUNK, prefix_caching=True)
        counted, _ = variant.revision.progress(config, one, end)
        return bool(counted >= tokens), bool(documented.is_last_chunk(tokens + more, has, CHUNK))

    def asked(result: Any) -> Any:
        ends, last = result
        return z3.BoolVal(last or not ends)

    return holds_on(numbers, list(paths(numbers, code)), asked)


Lemma = Callable[[SchedulerVariant, int], list[Any]]
LEMMAS: dict[str, tuple[str, Lemma]] = {
    "decode_tkv_covers_every_member": (
        "The tkv of a decode step is no less than the length of any member.",
        _decode_tkv_covers_every_member,
    ),
    "chunk_tkv_covers_every_member": (
        "What a chunk reports as tkv is no less than the length of any member.",
        _chunk_tkv_covers_every_member,
    ),
    "step_is_idle_only_if_none_decodes": (
        "A step is idle only while no request decodes.",
        _step_is_idle_only_if_none_decodes,
    ),
    "formula_is_consulted_with_covering_tkv": (
        "A request joins by the formula, asked by a tkv no less than any member's length.",
        _formula_is_consulted_with_covering_tkv,
    ),
    "prefill_is_uninterrupted": (
        "From the first chunk of a request to its last no other step comes.",
        _prefill_is_uninterrupted,
    ),
    "formula_is_consulted_at_last_chunk": (
        "A chunk that ends the prompt was asked about as the last one.",
        _formula_is_consulted_at_last_chunk,
    ),
}
