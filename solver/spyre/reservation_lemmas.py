"""No more blocks are promised than are free (SPY-R50), for any number of requests.

The need of an admitted request is the largest number of blocks that it ever holds. Those blocks of
its need that it does not hold yet are promised to it. The invariant is that all promised blocks
together, including those kept for aborted requests (SPY-P02), are no more than the free blocks.
`others` is the sum over all requests except the current one, so the number of requests does not
appear.

1. `holdings_never_exceed_need`: with its hit, chunks and decode steps, a request never has more
   computed tokens than its prompt and max_tokens minus one.
2. `admission_keeps_promises_covered`: a request that passes the test `need - shared <= free -
   promised` keeps the invariant, and finds the blocks of its first chunk free. `shared` counts the
   hit blocks that another request holds. Hit blocks that no request holds (`idle`) are taken from
   the free ones. If the other holders leave later, shared blocks stay with the newcomer.
3. `growth_keeps_promises_covered`: a request that takes blocks within its need keeps the invariant,
   and finds these blocks free.
4. `leaving_keeps_promises_covered`: a request that ends, or that is aborted inside a step, keeps
   the invariant: its promises end, and shared blocks stay held.
5. `abort_keeps_promises_covered`: an abort keeps the invariant even if the promise is never
   withdrawn, because at least as many blocks are given back.

Publishing and pausing do not change which blocks are held. A hit lowers the number of free blocks
by exactly `idle`, and a request that leaves raises it by the blocks that no other request holds.
All of this follows from rule ALL-R09, which exploration checks. The lemmas about the code (`code`)
claim this rule for the requests with which they run. On 2.5.2, these requests may be paused. The
function that publishes blocks is not run.

About admission when nothing is held or promised:

6. `lone_request_is_admitted`: a request that the check on arrival accepts passes.
   `lone_request_is_admitted_with_last_token`: the same if the last token is promised a block as
   well (release 2.5.2), with that release's own check on arrival.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import z3

from ...model import allocator
from ...model.errors import ReleaseEnded
from ...model.pool import Pool, free_blocks
from ...model.scenario import Request, Scenario
from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_5_2, scheduler
from ...model.spyre.model import REVISIONS
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from ..smt.terms import boolean
from .code_lemmas import BLOCK, any_switches, door_refuses_what_lemmas_assume, make_request
from .symbolic_admission import Lengths, blocks, length, lengths_of, make_numbers
from .symbolic_state import any_rest


def obligations(block: int | None = None) -> list[Obligation]:
    lengths = lengths_of(block)
    return [make(lengths) for make in LEMMAS]


def _count(numbers: Numbers, name: str) -> Any:
    return numbers.fresh(name, 0)


@lemma("No request ever holds more blocks than it needs in its whole life.")
def holdings_never_exceed_need(lengths: Lengths, less: int) -> list[Any]:
    return _within_need(lengths, less, last_token=False)


@lemma("No request holds more blocks than it needs, even if its last token counts as well.")
def holdings_never_exceed_need_with_last_token(lengths: Lengths, less: int) -> list[Any]:
    return _within_need(lengths, less, last_token=True)


def _within_need(lengths: Lengths, less: int, *, last_token: bool) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    computed, hit = numbers.fresh("computed", 1), _count(numbers, "hit")
    # Chunks end with the prompt, and decode steps before the last token. A hit leaves one token of
    # the prompt.
    numbers.facts += [computed <= prompt + max_tokens - 1, hit * lengths.block <= prompt - 1]
    # If the last token gets a block, the request may have one block more than it needs.
    spared, less = (0, 2 * less) if last_token else (1, less)
    need = blocks(numbers, lengths, prompt + max_tokens - spared) - less
    return negated(numbers, z3.And(blocks(numbers, lengths, computed) <= need, hit <= need))


@lemma("An admitted request finds its blocks free, and no more are promised than are left.")
def admission_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """With `more` set to 1, this is the lemma's guard, a variant that must fail: an idle hit block
    is subtracted from the need, as if a request held it."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    shared, idle, taken = (_count(numbers, name) for name in ("shared", "idle", "taken"))
    numbers.facts += [others <= free, idle <= free, shared + idle + taken <= need, idle >= more]
    numbers.facts.append(need - shared - more <= free - others)
    left, promised = free - idle - taken, need - shared - idle - taken
    return negated(numbers, z3.And(taken <= free - idle, others + promised <= left))


@lemma("A request that grows within its promise finds free blocks and leaves enough for the rest.")
def growth_keeps_promises_covered(lengths: Lengths, beyond: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, taken = _count(numbers, "held"), _count(numbers, "taken")
    numbers.facts += [others + need - held <= free, held <= need, held + taken <= need + beyond]
    kept = others + (need - held - taken) <= free - taken
    return negated(numbers, z3.And(taken <= free, kept))


@lemma("When a request ends, no more blocks are promised than are free.")
def leaving_keeps_promises_covered(lengths: Lengths, lost: int) -> list[Any]:
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others <= free + returned - lost)


@lemma("Even if a promise outlives its request, no more blocks are promised than are free.")
def abort_keeps_promises_covered(lengths: Lengths, more: int) -> list[Any]:
    """With `more` set to 1, this is the lemma's guard, a variant that must fail: one more block
    stays promised."""
    numbers = make_numbers(lengths)
    free, others, need = (_count(numbers, name) for name in ("free", "others", "need"))
    held, returned = _count(numbers, "held"), _count(numbers, "returned")
    numbers.facts += [others + need - held <= free, held <= need, returned <= held]
    return negated(numbers, others + (need - held) + more <= free + returned)


@lemma("If nothing is held or promised, a request that the check on arrival accepted is admitted.")
def lone_request_is_admitted(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    pool = numbers.fresh("pool", 1)
    numbers.facts.append(prompt + max_tokens - 1 <= (pool + less) * lengths.block)
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens - 1) <= pool)


@lemma(
    "If nothing is held or promised, a request that the releases' check on arrival accepted is "
    "admitted even if its last token is promised a block."
)
def lone_request_is_admitted_with_last_token(lengths: Lengths, protocol: int) -> list[Any]:
    """With `protocol` set to 1, this is the lemma's guard, a variant that must fail: the check on
    arrival is that of the target protocol, which does not count the last token."""
    numbers = make_numbers(lengths)
    prompt, max_tokens = numbers.fresh("prompt", 1), numbers.fresh("max_tokens", 1)
    longest = numbers.fresh("longest", 1)
    rounded = blocks(numbers, lengths, prompt) * lengths.block
    within = prompt + max_tokens - 1 if protocol else rounded + max_tokens
    numbers.facts.append(within <= longest)
    pool = blocks(numbers, lengths, longest)  # as vLLM requires at start-up
    return negated(numbers, blocks(numbers, lengths, prompt + max_tokens) <= pool)


LEMMAS = (
    holdings_never_exceed_need,
    holdings_never_exceed_need_with_last_token,
    admission_keeps_promises_covered,
    growth_keeps_promises_covered,
    leaving_keeps_promises_covered,
    abort_keeps_promises_covered,
    lone_request_is_admitted,
    lone_request_is_admitted_with_last_token,
)


def never_admitted(block: int, pool: int, chunk: int) -> Scenario:
    """Return a scenario with a request that fills the pool, while release 2.5.2 demands one more
    block for its last token.

    The target protocol accepts it; the release's own check on arrival does not.
    """
    longest = pool * block
    request = Request(id="r0", arrival=0, prompt=(("r0", longest - 1),), max_tokens=2, output_len=2)
    return Scenario(
        system="spyre",
        revision="2.5.2",
        config={
            "block_size": block,
            "chunk_size": chunk,
            "max_model_len": longest,
            "num_blocks": pool,
        },
        requests=(request,),
        origin={
            "engine": "z3",
            "note": "the block for the last token never becomes free",
            "seed": None,
        },
    )


KINDS = {
    "admits_0": "When a request joins another",
    "admits_shared": "When it shares a block",
    "admits_idle": "When it finds a block that no request holds",
    "prefills": "When a request prefills",
    "decodes": "When a request decodes",
}
FEW_BLOCKS = 2  # the blocks of a chunk; the code hands them out one by one


def code(block: int | None = None) -> list[Obligation]:
    """Return the lemmas which run the code on symbols: a whole step keeps the invariant, and an
    abort does as well.

    One request takes part in the step, and another may join it. Any number of blocks may be
    promised to others.
    """
    size = block or BLOCK
    step = ("spyre.scheduler.step", "spyre.blocks.hold")
    joins = ("spyre.blocks.fits_pool", "spyre.blocks.reserved", "spyre.blocks.admit")
    at_end = {
        "sound": "spyre.blocks.blocks_at_end",
        "2.5.2": "spyre.release_2_5_2.blocks_at_end",
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
        """Return such a request; with `decodes` None, it may do either."""
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
        """Return the number of blocks that the request may need. With `last_token` 1, its last
        token counts as well."""
        return blocks(numbers, Lengths(block, None), self.prompt + self.tokens - 1 + last_token)

    def of(self, run: SymbolicRun, name: str, given: tuple[int, ...]) -> Sequence:
        decodes = z3.If(self.computed >= self.prompt, self.computed - self.prompt + 1, 0)
        return make_request(
            run,
            name,
            prompt=self.prompt,
            max_tokens=self.tokens,
            output_len=self.ends,
            computed=self.computed,
            generated=decodes,
            blocks=given,
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
    """Return the claim that no request exceeds its need, that all promised blocks are free, that no
    promise to other requests is withdrawn, and that free and held blocks, each counted once, are as
    many as before.

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
    """Return what `_promises_covered` needs: the blocks of each request, those that are free, those
    promised to others, how many fewer than before these are, and whether each block is still free
    or held."""
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
    may not be within the limit. With `more` set to 1, this is the lemma's guard, a variant that
    must fail: before the step, one block more than is free may be promised.
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
    hit = {"admits_shared": (1,), "admits_idle": (9,)}.get(kind, ())
    numbers.facts.append(boolean("pool is bounded"))
    if hit:
        numbers.facts.append(boolean("prefix caching"))
        # The block of its last token is never a hit.
        numbers.facts += [holders["1"].prompt > block, free >= (kind == "admits_idle")]

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, FEW_BLOCKS)
        idle = tuple((block, None) for block in hit) if kind == "admits_idle" else ()
        size = run.number(free - len(idle) + 1)
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
            pool=Pool(size, (), 2, idle),
            **any_rest(run) | {"lost_blocks": run.number(others)},
        )
        try:
            with (
                stubs(pool_of, prefix_hit=lambda *_: hit),
                stubs(allocator, publish_full=lambda pool, request, *_: (request, pool)),
                stubs(release_2_5_2, fits_limit=lambda *_: run.answer(z3.Bool("fits"))),
                stubs(documented, written=_nothing),
                stubs(scheduler, observe=_nothing),
            ):
                after, _ = scheduler.step(config, revision, state)
        except ReleaseEnded:
            return None
        return _after(state, after)

    return holds_on(
        numbers, paths(numbers, code), _promises_covered(numbers, block, last_token, holders)
    )


def _nothing(*_: Any) -> Any:
    return {}


@lemma(
    "An abort leaves no more blocks promised than are free, and loses none (revision {name}).",
    name="code_keeps_promises_covered_at_abort_{name}",
)
def code_keeps_promises_covered_at_abort(block: int, name: str, more: int) -> list[Any]:
    """Claim that no more blocks are promised than are free after an abort. The aborted request
    holds two blocks, one of which may be shared, and may be in its prefill; another request may
    decode. One that decodes may be paused if the revision pauses requests.

    With `more` set to 1, this is the lemma's guard, a variant that must fail: before the abort,
    three blocks more than are free may be promised.
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
            running=tuple(request for n, request in known.items() if n not in paused),
            paused=tuple(request for n, request in known.items() if n in paused),
            pool=Pool(run.number(free + 3), (), 4),
            **any_rest(run) | {"lost_blocks": run.number(others)},
        )
        within = run.answer(inside)
        after = scheduler.abort(config, revision, state, "0", inside=within)
        return _after(state, after)

    claim = _promises_covered(numbers, block, last_token, holders)
    return holds_on(numbers, paths(numbers, code), claim)
