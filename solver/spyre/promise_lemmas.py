"""The code of a step, and of an abort, keeps promised blocks free (SPY-R50).

`reservation_lemmas` has the arithmetic. The code runs on symbols, with one or two requests and any
number of blocks promised to others, and with any other values in the state and the configuration.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple

import z3

from ...model.errors import ReleaseEnded
from ...model.pool import free_blocks
from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_5_2, scheduler
from ...model.spyre.forward import Forward
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, bare, holds_on, paths, stubs
from ..smt.loops import body_of
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.pools import SAME, any_pool
from ..smt.terms import boolean, integer
from .code_lemmas import between_steps
from .constraint_lemmas import door_refuses_what_lemmas_assume
from .surroundings import BLOCK, any_switches, make_request
from .symbolic_admission import Lengths, blocks, length
from .symbolic_state import any_rest

KINDS = {
    "admits_0": "When a request joins another",
    "admits_shared": "When it shares a block",
    "admits_idle": "When it finds a block that no request holds",
    "prefills": "When a request prefills",
    "decodes": "When a request decodes",
}
FEW_BLOCKS = 2  # the blocks of a chunk; the code hands them out one by one


def obligations(block: int | None = None) -> list[Obligation]:
    """Return the lemmas which run the code on symbols: a whole step keeps the invariant, and an
    abort does as well.

    One request takes part in the step, and another may join this request. Any number of blocks may
    be promised to others.
    """
    size = block or BLOCK
    step = ("spyre.scheduler.step", "spyre.blocks.hold")
    joins = ("spyre.blocks.fits_pool", "spyre.blocks.reserved", "spyre.blocks.admit")
    at_end = {
        "sound": "spyre.blocks.blocks_at_end",
        "2.5.2": "spyre.release_2_5_2.blocks_at_end",
    }
    chooses = {
        "sound": "spyre.documented.candidate",
        "2.5.2": "spyre.release_2_5_2.candidate",
    }
    lost = {"sound": "spyre.blocks.lost_blocks", "2.5.2": "spyre.release_2_5_2.lost_blocks"}
    lemmas = [door_refuses_what_lemmas_assume(size)]
    for name, code in at_end.items():
        for kind, event in KINDS.items():
            kept = step_keeps_promises_covered(size, name, kind)
            joined = (code, *joins) if kind.startswith("admits") else ()
            sentence = f"{event}, {kept.sentence}"
            lemmas.append(replace(kept, sentence=sentence, code=(*step, *joined)))
        aborted = code_keeps_promises_covered_at_abort(size, name)
        lemmas.append(replace(aborted, code=("spyre.scheduler.abort", lost[name])))
        summed = code_adds_each_promise(size, name)
        lemmas.append(replace(summed, code=("spyre.blocks.reserved", code)))
        shortage = shortage_of_blocks_ends_search(size, name)
        lemmas.append(replace(shortage, code=(chooses[name],)))
        room = room_counts_each_shared_block(size, name)
        lemmas.append(replace(room, code=("spyre.blocks.fits_pool", code)))
        lemmas.append(requests_that_end_together_keep_promises_covered(size, name))
        lemmas += between_steps(size, name)
    return lemmas


class Holder(NamedTuple):
    """A request in symbols, which has `held` blocks and either decodes or is in its prefill. Its
    prompt may fill the blocks of two more chunks."""

    prompt: Any
    tokens: Any
    ends: Any
    computed: Any
    held: int

    @classmethod
    def make(cls, numbers: Numbers, block: int, held: int, *, decodes: bool | None) -> "Holder":
        """Return a request with `held` blocks. It decodes or is in its prefill, as `decodes` says;
        if that is None, it may do either."""
        prompt, tokens = length(numbers, "prompt"), length(numbers, "tokens")
        ends, computed = length(numbers, "ends"), length(numbers, "computed", 0)
        numbers.facts += [ends <= tokens, computed <= held * block]
        if held:
            numbers.facts.append(computed > (held - 1) * block)
        joined, fits = prompt <= computed, prompt <= (held + 2 * FEW_BLOCKS) * block
        numbers.facts.append(z3.If(joined, computed - prompt + 1 < ends, fits))
        if decodes is not None:
            numbers.facts.append(joined == decodes)
        return cls(prompt, tokens, ends, computed, held)

    def need(self, numbers: Numbers, block: int, last_token: int) -> Any:
        """Return the number of blocks that the request may need. If `last_token` is 1, its last
        token counts as well."""
        return blocks(numbers, Lengths(block, None), self.prompt + self.tokens - 1 + last_token)

    def of(self, run: SymbolicRun, name: str, given: tuple[int, ...]) -> Sequence:
        """Return the request with the given blocks, any of which may be published. It may have had
        any prefix hit, and may have been paused for any number of steps."""
        others = {}
        if given:
            fields = ("published", "prefix_hit", "paused_steps")
            others = {field: integer(f"{field} of {name}") for field in fields}
            published = run.number(others["published"])
            found = (n for n in range(len(given)) if published <= n)
            others["published"] = next(found, len(given))
        return make_request(
            run,
            name,
            prompt=self.prompt,
            max_tokens=self.tokens,
            output_len=self.ends,
            computed=self.computed,
            generated=z3.If(self.computed >= self.prompt, self.computed - self.prompt + 1, 0),
            content=SAME,
            blocks=given,
            **others,
        )


def _pauses(name: str) -> bool:
    return "paused" in REVISIONS[name].shows


def _promise_only(name: str) -> tuple[Any, int]:
    """Drop the revision's other constraints. Return the result, and the number of additional tokens
    for which it promises blocks."""
    yes: Any = {"volume_check": lambda *_: True, "fits_model_length": lambda *_: True}
    return replace(REVISIONS[name], **yes), int(name == "2.5.2")


def _promises_covered(
    numbers: Numbers, block: int, last_token: int, holders: dict[str, Holder]
) -> Callable[[Any], Any]:
    """Return the claim that no request exceeds its need, that all promised blocks are free, and
    that no promise to other requests is withdrawn. Also claim that as many blocks as before are
    free or held, each counted once.

    Promised blocks include those promised to aborted requests.
    """
    need = {name: request.need(numbers, block, last_token) for name, request in holders.items()}

    def covered(result: Any) -> Any:
        if result is None:
            return z3.BoolVal(False)  # no block was free
        held, free, lost, withdrawn, none_lost = result
        promised = z3.Sum([lost, *(need[name] - count for name, count in held.items())])
        within = [count <= need[name] for name, count in held.items()]
        return z3.And(promised <= free, withdrawn <= 0, none_lost, *within)

    return covered


def _after(before: State, after: State) -> Any:
    """Return what `_promises_covered` compares: how many blocks each request holds, how many are
    free, how many are promised to others, by how much that number fell, and whether as many blocks
    as before are free or held."""
    held = {request.id: len(request.blocks) for request in _admitted(after)}
    free: Any = free_blocks(after.pool)
    lost = bare(after.lost_blocks)
    withdrawn = bare(before.lost_blocks) - lost
    return held, bare(free), lost, withdrawn, _all_blocks(after) == _all_blocks(before)


def _all_blocks(state: State) -> Any:
    free: Any = free_blocks(state.pool)
    return bare(free) + len({block for request in _admitted(state) for block in request.blocks})


def _admitted(state: State) -> tuple[Sequence, ...]:
    """Return every request that holds blocks. The lemmas must not rely on `State.admitted`, which
    belongs to the code that they are about."""
    return state.running + state.paused


@lemma(
    "a step promises no more blocks than are free, and loses none (revision {name}).",
    name="step_keeps_promises_covered_{kind}_{name}",
)
def step_keeps_promises_covered(block: int, name: str, kind: str, more: int) -> list[Any]:
    """Claim that no more blocks are promised than are free after a step.

    A request that has a block may be paused if the revision pauses requests, and any batch may or
    may not be within the limit. If `more` is 1, make the guard's claim instead, which must fail:
    before the step, one block more than is free may be promised.
    """
    numbers = Numbers()
    revision, last_token = _promise_only(name)
    pauses = _pauses(name)
    free, others = length(numbers, "free", 0), length(numbers, "others", 0)
    member = Holder.make(numbers, block, 1, decodes=kind != "prefills")
    holders = {"0": member}
    if kind.startswith("admits"):
        holders["1"] = Holder.make(numbers, block, 0, decodes=False)
    known = [request for request in holders.values() if request.held]
    promised = z3.Sum(
        [others, *(request.need(numbers, block, last_token) - 1 for request in known)]
    )
    numbers.facts.append(promised <= free + more)
    numbers.facts += [request.need(numbers, block, last_token) >= 1 for request in known]
    numbers.facts.append(boolean("pool is bounded"))
    if kind in ("admits_shared", "admits_idle"):
        numbers.facts += [boolean("prefix caching"), free >= (kind == "admits_idle")]

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, FEW_BLOCKS)
        found = {"admits_shared": {"shared": (1,)}, "admits_idle": {"idle": (9,)}}.get(kind, {})
        holding = tuple(
            request.of(run, n, (int(n) + 1,)) for n, request in holders.items() if request.held
        )
        paused = pauses and kind != "prefills" and run.answer(z3.Bool("paused"))
        waiting = tuple(
            request.of(run, n, ()) for n, request in holders.items() if not request.held
        )
        state = State(
            waiting=waiting,
            running=() if paused else holding,
            paused=holding if paused else (),
            pool=any_pool(run, free, block, held=1, **found),
            **any_rest(run) | {"lost_blocks": run.number(others)},
        )
        try:
            with (
                stubs(release_2_5_2, fits_limit=lambda *_: run.answer(z3.Bool("fits"))),
                stubs(documented, written=_nothing),
                stubs(scheduler, observe=_nothing),
            ):
                after, _ = SpyreModel(config, revision).step(state)
        except ReleaseEnded:
            return None
        return _after(state, after)

    return holds_on(
        numbers, paths(numbers, code), _promises_covered(numbers, block, last_token, holders)
    )


def _behind(run: SymbolicRun) -> tuple[Sequence, ...]:
    return (make_request(run, "waits"),) if run.answer(z3.Bool("another waits")) else ()


def _nothing(*_: Any) -> Any:
    return {}


@lemma(
    "An abort leaves no more blocks promised than are free, and loses none (revision {name}).",
    name="code_keeps_promises_covered_at_abort_{name}",
)
def code_keeps_promises_covered_at_abort(block: int, name: str, more: int) -> list[Any]:
    """Claim that no more blocks are promised than are free after an abort. The aborted request
    holds two blocks, one of which may be shared, and may be in its prefill; another request may
    decode, and another one may wait. One that decodes may be paused if the revision pauses
    requests.

    If `more` is 1, make the guard's claim instead, which must fail: before the abort, three blocks
    more than are free may be promised.
    """
    numbers = Numbers()
    revision, last_token = _promise_only(name)
    pauses = _pauses(name)
    free, others = length(numbers, "free", 0), length(numbers, "others", 0)
    holders = {
        "0": Holder.make(numbers, block, 2, decodes=None),
        "1": Holder.make(numbers, block, 1, decodes=True),
    }
    promised = [
        request.need(numbers, block, last_token) - request.held for request in holders.values()
    ]
    numbers.facts.append(z3.Sum([others, *promised]) <= free + 3 * more)
    numbers.facts += [promise >= 0 for promise in promised]
    # An aborted request gives back two blocks, or one if it shares the other.
    shares, inside = z3.Bool("shares"), z3.Bool("inside")
    numbers.facts += [boolean("pool is bounded"), boolean("prefix caching") == shares]

    def code(run: SymbolicRun) -> Any:
        shared = run.answer(shares)
        config = any_switches(run, block, FEW_BLOCKS)
        known = {"0": holders["0"].of(run, "0", (1, 2))}
        if run.answer(z3.Bool("beside")):
            known["1"] = holders["1"].of(run, "1", (1 if shared else 3,))
        paused = {
            n
            for n, request in known.items()
            if pauses and request.prefilled and run.answer(z3.Bool(f"paused {n}"))
        }
        state = State(
            waiting=_behind(run),
            running=tuple(request for n, request in known.items() if n not in paused),
            paused=tuple(request for n, request in known.items() if n in paused),
            pool=any_pool(run, free, block, held=3),
            **any_rest(run) | {"lost_blocks": run.number(others)},
        )
        within = run.answer(inside)
        after = scheduler.abort(config, revision, state, "0", inside=within)
        return _after(state, after)

    claim = _promises_covered(numbers, block, last_token, holders)
    return holds_on(numbers, paths(numbers, code), claim)


@lemma(
    "The promises to any number of admitted requests are added up, one by one (revision {name}).",
    name="code_adds_each_promise_{name}",
)
def code_adds_each_promise(block: int, name: str, more: int) -> list[Any]:
    """Claim that one iteration of the loop in `blocks.reserved` adds the promise to its request,
    whatever the sum so far. Also claim that the loop visits all of three requests, any of which may
    be paused if the revision pauses requests."""
    numbers = Numbers()
    revision, last_token = _promise_only(name)
    lost, so_far = length(numbers, "lost", 0), length(numbers, "promised", 0)
    holders = [Holder.make(numbers, block, held, decodes=None) for held in (1, 2, 1)]
    promises = [request.need(numbers, block, last_token) - request.held for request in holders]
    turn = body_of(pool_of, "reserved")

    def code(run: SymbolicRun) -> Any:
        known = [
            request.of(run, str(at), (1, 2, 3)[: request.held])
            for at, request in enumerate(holders)
        ]
        config = any_switches(run, block, FEW_BLOCKS)
        rest = any_rest(run) | {"lost_blocks": run.number(lost)}
        last = len(known)
        while _pauses(name) and last and run.answer(z3.Bool(f"paused {last}")):
            last -= 1
        state = State(running=tuple(known[:last]), paused=tuple(known[last:]), **rest)
        given = {"config": config, "revision": revision, "state": state, "request": known[0]}
        given |= {"at_end": revision.blocks_at_end, "promised": run.number(so_far)}
        added = turn(**{name: given[name] for name in signature(turn).parameters})
        return bare(added["promised"]), bare(pool_of.reserved(config, revision, state))

    def summed(result: Any) -> Any:
        after_one, all_of_them = result
        return z3.And(
            after_one == so_far + promises[0] + more,
            all_of_them == lost + z3.Sum(promises),
        )

    return holds_on(numbers, paths(numbers, code), summed)


@lemma(
    "When three requests that share a block decode, and one, two or all of them end, no more "
    "blocks are promised than are free, and none is lost (revision {name}).",
    "spyre.scheduler.complete",
    "spyre.blocks.release",
    name="requests_that_end_together_keep_promises_covered_{name}",
)
def requests_that_end_together_keep_promises_covered(block: int, name: str, more: int) -> list[Any]:
    """Claim that `scheduler.complete` keeps promised blocks free and loses none. The third request
    has only the shared block, and ends. Another request may wait.

    If `more` is 1, make the guard's claim instead, which must fail: six more blocks than are free
    may be promised before.
    """
    numbers = Numbers()
    revision, last_token = _promise_only(name)
    free, others = length(numbers, "free", 0), length(numbers, "others", 0)
    holders = {n: Holder.make(numbers, block, 2 - (n == "2"), decodes=True) for n in "012"}
    third = holders["2"]
    numbers.facts.append(third.ends == third.computed - third.prompt + 2)
    promised = [
        request.need(numbers, block, last_token) - request.held for request in holders.values()
    ]
    numbers.facts.append(z3.Sum([others, *promised]) <= free + 6 * more)
    numbers.facts += [promise >= 0 for promise in promised]
    numbers.facts += [boolean("pool is bounded"), boolean("prefix caching")]

    def code(run: SymbolicRun) -> Any:
        state = State(
            waiting=_behind(run),
            running=(
                holders["0"].of(run, "0", (1, 2)),
                holders["1"].of(run, "1", (1, 3)),
                third.of(run, "2", (1,))._replace(published=1),
            ),
            pool=any_pool(run, free, block, held=3),
            **any_rest(run) | {"lost_blocks": run.number(others)},
        )
        computed = Forward(dict.fromkeys(holders, 1), {}, {}, 1)
        config = any_switches(run, block, FEW_BLOCKS)
        after, _, _ = scheduler.complete(config, revision, state, computed)
        return _after(state, after)

    claim = _promises_covered(numbers, block, last_token, holders)
    return holds_on(numbers, paths(numbers, code), claim)


@lemma(
    "The check for room counts each hit block that another request holds once, of up to four "
    "(revision {name}).",
    name="room_counts_each_shared_block_{name}",
)
def room_counts_each_shared_block(block: int, name: str, more: int) -> list[Any]:
    """Claim that a newcomer has room if and only if its blocks, without the shared ones, are free
    and not promised. If `more` is 1, make the guard's claim instead, which must fail: one block
    more is shared."""
    numbers = Numbers()
    revision, last_token = _promise_only(name)
    newcomer = Holder.make(numbers, block, 0, decodes=False)
    free, promised = length(numbers, "free", 0), length(numbers, "promised", 0)
    numbers.facts.append(boolean("pool is bounded"))

    def code(run: SymbolicRun) -> Any:
        hit = tuple(n for n in range(1, 5) if run.answer(z3.Bool(f"hits {n}")))
        shared = tuple(n for n in hit if run.answer(z3.Bool(f"another holds {n}")))
        other = make_request(run, "other", computed=1)._replace(blocks=(9, *shared))
        state = State(
            running=(other,), pool=any_pool(run, free, block, held=len(shared)), **any_rest(run)
        )
        config = any_switches(run, block, FEW_BLOCKS)
        with stubs(pool_of, prefix_hit=lambda *_: hit, reserved=lambda *_: run.number(promised)):
            fits = pool_of.fits_pool(config, revision, state, newcomer.of(run, "new", ()))
        return bool(fits), len(shared)

    def as_needed(result: Any) -> Any:
        fits, shared = result
        need = newcomer.need(numbers, block, last_token) - shared - more
        return z3.BoolVal(fits) == (need <= free - promised)

    return holds_on(numbers, paths(numbers, code), as_needed)


@lemma(
    "A request starts only if the pool has room for it and for each request ahead of it in line "
    "(revision {name}).",
    name="shortage_of_blocks_ends_search_{name}",
)
def shortage_of_blocks_ends_search(block: int, name: str, ignored: int) -> list[Any]:
    """Claim that `Revision.candidate` chooses a request only if the pool has room for this request
    and for each request ahead of it in line. Two requests wait, and a third may decode.

    If `ignored` is 1, make the guard's claim, which must fail: in addition, some request is always
    chosen.
    """
    numbers, revision = Numbers(), REVISIONS[name]

    def code(run: SymbolicRun) -> Any:
        config, asked = any_switches(run, block, FEW_BLOCKS), dict[str, Any]()

        def has_room(given: Any, _: Any, of: State, newcomer: Sequence) -> bool:
            asked[newcomer.id] = z3.And(z3.Bool(f"room {newcomer.id}"), given is config)
            return run.answer(z3.Bool(f"room {newcomer.id}"))

        waiting = tuple(make_request(run, number) for number in ("0", "1"))
        member = make_request(run, "2", computed=1, generated=1)
        decodes = (member,) if run.answer(z3.Bool("another decodes")) else ()
        state = State(waiting, decodes, **any_rest(run))
        may = stubs(
            documented, may_prefill=lambda *of: run.answer(z3.Bool(f"may prefill {of[-1].id}"))
        )
        with may:
            checked = replace(revision, fits_pool=has_room)
            chosen = revision.candidate(config, checked, state)
        if chosen is None:
            return z3.BoolVal(not ignored)
        ahead = waiting[: 1 + waiting.index(chosen)]
        return z3.And([asked.get(request.id, z3.BoolVal(False)) for request in ahead])

    return holds_on(numbers, paths(numbers, code), lambda claim: claim)
