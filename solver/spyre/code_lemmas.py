"""Lemmas which show that Spyre's scheduler computes what the arithmetic lemmas assume.

The lemmas on chunks, lengths, promised blocks and fairness hold for any number of requests, but
they are pure arithmetic. The lemmas in this module, in `promise_lemmas` and in
`fairness_lemmas` run the model's own functions on symbols (`smt.execution`), so a wrong change to
the scheduler makes one of them fail. The other modules (`admission_lemmas`, `formula_lemmas`,
`peak_lemmas`, `progress_lemmas`) run the code as well.

- `chunks`: the functions that plan a chunk agree with `chunk_lemmas.plan`, a request starts with
  exactly the tokens of its hit computed, and the step that runs a chunk follows the plan.
- `lengths`: the constraint on max_model_len, the tkv of two members and the check on arrival agree
  with `length_lemmas`, and a step obeys the constraint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from operator import index, is_
from types import SimpleNamespace
from typing import Any, NamedTuple

import z3

from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_1_2, release_2_5_2, scheduler
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.revision import Revision
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Sequence, State
from ..smt.execution import (
    SymbolicLength,
    SymbolicRun,
    UndecidedError,
    bare,
    holds_on,
    paths,
    stubs,
)
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from . import chunk_lemmas, length_lemmas
from .symbolic_admission import Joining, Lengths, blocks, length
from .symbolic_state import SymbolicConfig, any_rest

BLOCK, CHUNK_BLOCKS = 64, 8  # tokens and blocks, if the lemmas are about any size
HIT_BLOCKS = 3  # the most blocks of a hit with which `blocks.admit` is run
HUGE = 10**9  # a limit that no lemma here reaches
LENGTHS = ("prompt", "max_tokens", "output_len", "prefix_hit")  # a chunk changes none of these


def chunks(block: int | None) -> list[Obligation]:
    size = block or BLOCK
    counted = {
        "sound": "spyre.documented.progress",
        "2.1.2": "spyre.release_2_1_2.progress",
        "2.5.2": "spyre.release_2_5_2.progress",
    }
    return [
        chunk_is_planned_as_in_lemmas(size),
        usable_hit_is_as_in_lemmas(),
        last_chunk_is_as_in_lemmas(size),
        newcomer_starts_with_its_hit(size),
        *(
            replace(step_runs_planned_chunk(size, name), code=("spyre.forward.compute_chunk", code))
            for name, code in counted.items()
        ),
    ]


def lengths(block: int | None) -> list[Obligation]:
    size = block or BLOCK
    return [
        *(constraint_is_as_in_lemmas(size, members) for members in (0, 1, 2)),
        max_tkv_is_as_in_lemmas(size),
        door_refuses_what_lemmas_assume(size),
        step_obeys_length_constraint(size),
    ]


def config_of(block: int, chunk_blocks: int = CHUNK_BLOCKS, **keys: Any) -> SpyreConfig:
    lengths = {"max_model_len": HUGE, "max_batch_tkv": HUGE}
    return SpyreConfig(block_size=block, chunk_size=chunk_blocks * block, **{**lengths, **keys})


def make_request(run: SymbolicRun, name: str, **fields: Any) -> Sequence:
    """Return a request of the model whose given fields are numbers of the run."""
    given: dict[str, Any] = {"prompt": 1, "max_tokens": 1, "output_len": 1, **fields}
    for key, value in given.items():
        given[key] = run.number(value) if z3.is_expr(value) else value
    return Sequence(id=name, **given)


def _any_plan(block: int) -> tuple[Numbers, chunk_lemmas.Plan]:
    numbers = Numbers()
    prompt, done = length(numbers, "prompt"), length(numbers, "done", 0)
    numbers.facts.append(done * block < prompt)
    return numbers, chunk_lemmas.plan(numbers, (block, CHUNK_BLOCKS), prompt, done * block)


@lemma(
    "The code plans the same chunk as the lemmas.",
    "spyre.documented.next_chunk",
    "spyre.documented.left_padding_blocks",
    "spyre.documented.chunk_count",
)
def chunk_is_planned_as_in_lemmas(block: int, more: int) -> list[Any]:
    numbers, plan = _any_plan(block)

    def code(run: SymbolicRun) -> Any:
        prompt: Any = run.number(plan.prompt)
        chunk = CHUNK_BLOCKS * block
        start, end = documented.next_chunk(prompt, run.number(plan.computed), chunk, block)
        padding = documented.left_padding_blocks(prompt, chunk, block)
        return [bare(start), bare(end), bare(padding), bare(documented.chunk_count(prompt, chunk))]

    def planned(result: list[Any]) -> Any:
        start, end, padding, count = result
        same = z3.And(start == plan.start, end == plan.end + more)
        return z3.And(same, padding == plan.padding, count == plan.chunks)

    return holds_on(numbers, paths(numbers, code), planned)


@lemma("The usable part of a hit in the lemmas is that of the documentation.")
def usable_hit_is_as_in_lemmas(more: int) -> list[Any]:
    """Claim that `documented.usable_blocks` agrees with `chunk_lemmas`. The lemma names no code,
    because no step calls this function."""
    numbers = Numbers()
    padding, hit = length(numbers, "left", 0), length(numbers, "hit", 0)
    count = length(numbers, "count")

    def code(run: SymbolicRun) -> Any:
        arguments: Any = (run.number(padding), run.number(hit), run.number(count), CHUNK_BLOCKS)
        return bare(documented.usable_blocks(*arguments))

    usable = chunk_lemmas.usable_blocks(numbers, padding, hit, count, CHUNK_BLOCKS)
    return holds_on(numbers, paths(numbers, code), lambda taken: taken == usable + more)


@lemma(
    "The last-chunk constraints bind in the last chunk, and in no other.",
    "spyre.documented.is_held_to_last_chunk",
)
def last_chunk_is_as_in_lemmas(block: int, more: int) -> list[Any]:
    numbers, plan = _any_plan(block)

    def code(run: SymbolicRun) -> Any:
        request = make_request(run, "0", prompt=plan.prompt, computed=plan.computed)
        return documented.is_held_to_last_chunk(config_of(block), State(), request)

    last = plan.index == plan.chunks - 1 - more
    return holds_on(numbers, paths(numbers, code), lambda held: last == held)


@lemma(
    "A request starts with exactly the tokens of its hit computed (up to three blocks).",
    "spyre.blocks.admit",
    "allocator.start",
)
def newcomer_starts_with_its_hit(block: int, more: int) -> list[Any]:
    """Claim that `blocks.admit` gives a request the blocks of its hit, counts their tokens as
    computed, and changes nothing else about the request."""
    numbers = Numbers()
    prompt, tokens, ends = (length(numbers, name) for name in ("prompt", "tokens", "ends"))
    hit = numbers.fresh("hit", 0, HIT_BLOCKS)
    numbers.facts.append(hit * block < prompt)

    def code(run: SymbolicRun) -> Any:
        newcomer = make_request(run, "0", prompt=prompt, max_tokens=tokens, output_len=ends)
        found = tuple(range(1, 1 + index(run.number(hit))))
        config = config_of(block, prefix_caching=True)
        with stubs(pool_of, prefix_hit=lambda *_: found):
            started, _ = pool_of.admit(config, State(waiting=(newcomer,)), newcomer)
        rest = started._replace(computed=0, prefix_hit=0, blocks=(), published=0)
        kept = rest == newcomer and started.blocks == found
        return bare(started.computed), bare(started.prefix_hit), kept

    def exactly(result: Any) -> Any:
        computed, counted, kept = result
        tokens = hit * block + more
        return z3.And(computed == tokens, counted == tokens, z3.BoolVal(kept))

    return holds_on(numbers, paths(numbers, code), exactly)


@lemma(
    "A step computes the planned chunk of a request, and counts it, or leaves the request as it "
    "was (revision {name}).",
    name="step_runs_planned_chunk_{name}",
)
def step_runs_planned_chunk(block: int, name: str, more: int) -> list[Any]:
    """Claim that a step runs the planned chunk, whether it is the first or a later one, after any
    prefix hit, or that it changes nothing of the request.

    Another request may decode or be paused, and be aborted within the step; another one may wait.
    """
    numbers, plan = _any_plan(block)
    first, revision = z3.Bool("first"), REVISIONS[name]
    hit, tokens, ends = (length(numbers, name, 0) for name in ("hit", "tokens", "ends"))
    numbers.facts.append(ends >= 1)
    numbers.facts += [hit <= plan.computed, z3.Implies(first, hit == plan.computed), ends <= tokens]
    numbers.facts.append(z3.Implies(z3.Not(first), plan.computed >= 1))
    cached = length(numbers, "cached", 0)
    numbers.facts.append(z3.Implies(first, cached * block == plan.computed))

    def code(run: SymbolicRun) -> Any:
        request = make_request(
            *(run, "0"),
            prompt=plan.prompt,
            max_tokens=tokens,
            output_len=ends,
            computed=plan.computed,
            prefix_hit=hit,
        )
        started, covered, observed = request, list[Any](), list[Any]()
        config = any_switches(run, block)

        def hold(given: Any, holder: Any, tokens: Any, pool: Any) -> Any:
            must_be(given, config)
            if holder.id == "0":
                covered.append(bare(tokens))
            return holder, pool

        def admit(given: Any, state: State, newcomer: Sequence) -> Any:
            must_be(given, config)
            return started if newcomer.id == "0" else newcomer, state.pool

        def prefix_hit(given: Any, state: State, newcomer: Sequence) -> SymbolicLength:
            must_be(given, config)
            return SymbolicLength(run.number(cached if newcomer.id == "0" else z3.IntVal(0)))

        if starts := run.answer(first):
            request = request._replace(computed=0, prefix_hit=0)
        state = in_company(run, revision, request, starts=starts)
        inside = ("1",) if run.answer(z3.Bool("aborts beside")) else ()
        with (
            on_symbols(documented),
            stubs(pool_of, prefix_hit=prefix_hit, admit=admit, hold=hold, release=_same_pool),
            stubs(documented, written=lambda *_: [], max_tkv=lambda *_: 1),
            stubs(scheduler, observe=lambda *seen: observed.append(seen)),
            any_constraints(run, revision) as constrained,
        ):
            after, _ = scheduler.step(config, constrained, state, inside)
        [(*_, computed, _, _)] = observed
        if "0" not in computed.scheduled:
            queues = [*after.waiting, *after.running, *after.paused]
            return not covered and any(kept is request for kept in queues)
        return (
            [bare(each) for each in (computed.scheduled["0"], computed.left_pad_blocks["0"])],
            [kept for kept in after.running if kept.id == "0"],
            covered,
        )

    if name == "sound":
        counted, held = plan.end, plan.end
    else:
        counted, held = chunk_lemmas.progress(plan, hit, name == "2.1.2")
    share = plan.end - z3.If(hit > plan.start, hit, plan.start) + more
    emits = z3.If(counted >= plan.prompt, 1, 0)

    def follows(result: Any) -> Any:
        if isinstance(result, bool):
            return z3.BoolVal(result)
        [computed, pad], kept, covered = result
        if len(covered) != 1:
            return z3.BoolVal(False)
        left = z3.And(emits == 1, ends == 1)
        whole = (plan.prompt, tokens, ends, hit)
        stays = [
            z3.And(
                *(bare(each.computed) == counted, bare(each.generated) == emits, z3.Not(left)),
                *(
                    bare(getattr(each, name)) == own
                    for name, own in zip(LENGTHS, whole, strict=True)
                ),
            )
            for each in kept
        ]
        return z3.And(
            computed == share, pad == plan.padding, covered[0] == held, *(stays or [left])
        )

    return holds_on(numbers, paths(numbers, code, quick=True), follows)


def any_switches(
    run: SymbolicRun, block: int, chunk_blocks: int = CHUNK_BLOCKS, **keys: Any
) -> Any:
    """Return a configuration whose switches and limits may have any value, except those in
    `keys`."""
    names = ("max_num_seqs", "max_model_len", "max_batch_tkv")
    limits = {name: run.number(z3.Int(name)) for name in names} | keys
    return SymbolicConfig(run, config_of(block, chunk_blocks, **limits), z3.Int("num_blocks"))


def must_be(given: Any, config: Any) -> None:
    """Raise UndecidedError if the code passes a configuration on that is not the given one."""
    if given is not config:
        raise UndecidedError("asks about another configuration")


@contextmanager
def any_constraints(run: SymbolicRun, revision: Revision) -> Iterator[Revision]:
    """Inside the context, let each constraint of a revision answer anything. Yield the revision."""
    asked = count()

    def any_answer(*_: Any) -> bool:
        return run.answer(z3.Bool(f"fits {next(asked)}"))

    with stubs(release_2_1_2, fits_prompt=any_answer), stubs(release_2_5_2, fits_limit=any_answer):
        yield replace(
            revision, volume_check=any_answer, fits_model_length=any_answer, fits_pool=any_answer
        )


def in_company(run: SymbolicRun, revision: Revision, request: Sequence, *, starts: bool) -> State:
    """Return a state with a request that waits or prefills, beside another one that decodes or, if
    the revision pauses requests, is paused. Another one may wait behind it."""
    tokens = {field: z3.Int(f"{field} beside") for field in ("max_tokens", "output_len")}
    other = make_request(run, "1", computed=1, generated=1, blocks=(1,), **tokens)
    behind = make_request(run, "2") if run.answer(z3.Bool("another waits")) else None
    decodes = (other,) if run.answer(z3.Bool("another decodes")) else ()
    pauses = not decodes and "paused" in revision.shows and run.answer(z3.Bool("another pauses"))
    at_front = not starts and bool(decodes) and run.answer(z3.Bool("at the front"))
    prefills = () if starts else (request,)
    return State(
        waiting=(*((request,) if starts else ()), *((behind,) if behind else ())),
        running=(*prefills, *decodes) if at_front else (*decodes, *prefills),
        paused=(other,) if pauses else (),
        **any_rest(run),
    )


def _same_pool(config: Any, revision: Any, state: State, request: Any) -> Any:
    return state.pool


class Joined(NamedTuple):
    """A batch and a newcomer in symbols, with their tokens and remaining decode steps."""

    batch: list[tuple[Any, Any]]
    newcomer: Joining

    @classmethod
    def make(cls, numbers: Numbers, members: int) -> "Joined":
        batch = [(length(numbers, "has"), length(numbers, "left")) for _ in range(members)]
        return cls(batch, Joining(length(numbers, "prompt"), length(numbers, "remaining", 0)))

    def members(self, run: SymbolicRun) -> list[Sequence]:
        return [
            make_request(run, str(n), computed=has, max_tokens=left + 1, generated=1)
            for n, (has, left) in enumerate(self.batch)
        ]

    def joining(self, run: SymbolicRun) -> Sequence:
        prompt, remaining = self.newcomer
        return make_request(run, "new", prompt=prompt, max_tokens=remaining + 1)


@lemma(
    "The code's constraint is that of the lemmas ({members} decoding).",
    "spyre.documented.fits_model_length",
    name="constraint_is_as_in_lemmas_{members}",
)
def constraint_is_as_in_lemmas(block: int, members: int, more: int) -> list[Any]:
    """Claim that the code's constraint is that of the lemmas. With `more` set to 1, this is the
    lemma's guard, a variant that must fail: its max_model_len is one token larger than the
    code's."""
    numbers = Numbers()
    joined, longest = Joined.make(numbers, members), length(numbers, "longest")
    current = length(numbers, "current", 0)

    def code(run: SymbolicRun) -> Any:
        config = config_of(block, max_model_len=run.number(longest))
        at = run.number(current)
        return documented.fits_model_length(config, at, joined.members(run), joined.joining(run))

    fits = length_lemmas.passes(
        numbers, Lengths(block, None), current, joined.batch, joined.newcomer, longest + more
    )
    return holds_on(numbers, paths(numbers, code), lambda answer: fits == answer)


@lemma(
    "The max-tkv of two members, and of a prompt that joins, is that of the lemmas.",
    "spyre.documented.max_tkv",
    "spyre.release_2_1_2.tkv_after_last_chunk",
)
def max_tkv_is_as_in_lemmas(block: int, more: int) -> list[Any]:
    numbers = Numbers()
    number, other = length(numbers, "one"), length(numbers, "other")

    def code(run: SymbolicRun) -> Any:
        first, second = (run.number(tokens) for tokens in (number, other))
        batch = documented.max_tkv([first, second], block)
        return bare(batch), bare(release_2_1_2.tkv_after_last_chunk(first, second, block))

    tkv = length_lemmas.joint_tkv(numbers, Lengths(block, None), number, other) + more
    return holds_on(
        numbers, paths(numbers, code), lambda found: z3.And([tkv == own for own in found])
    )


def door(block: int) -> Obligation:
    return door_refuses_what_lemmas_assume(block)


@lemma(
    "The check on arrival accepts exactly the requests that fit in the model's length, the limit "
    "and the pool.",
    "spyre.model.SpyreModel.refusal",
)
def door_refuses_what_lemmas_assume(block: int, more: int) -> list[Any]:
    numbers = Numbers()
    prompt, tokens = length(numbers, "prompt"), length(numbers, "tokens")
    longest, limit, pool = (length(numbers, name) for name in ("longest", "limit", "pool"))

    def code(run: SymbolicRun) -> Any:
        config = config_of(
            block,
            max_model_len=run.number(longest),
            max_batch_tkv=run.number(limit),
            num_blocks=run.number(pool),
        )
        request: Any = SimpleNamespace(prompt_len=run.number(prompt), max_tokens=run.number(tokens))
        return SpyreModel(config, SOUND).refusal(request) is None

    computed = prompt + tokens - 1
    held = blocks(numbers, Lengths(block, None), computed)
    passes = z3.And(computed + more <= longest, computed <= limit, held <= pool)
    return holds_on(numbers, paths(numbers, code), lambda let_in: passes == let_in)


@lemma(
    "A last chunk that breaks the constraint never runs while one or two other requests decode.",
    "spyre.documented.decide",
    "spyre.documented.satisfies_last_chunk",
)
def step_obeys_length_constraint(block: int, unasked: int) -> list[Any]:
    """Claim that a step with one or two decoding requests asks the constraint about all of them, at
    their tkv, and obeys the answer, whatever the other checks answer. Another request may wait.

    With `unasked` set to 1, this is the lemma's guard, a variant that must fail: it claims the same
    of chunks other than the last.
    """
    numbers = Numbers()
    joined, tkv = Joined.make(numbers, 2), length(numbers, "tkv")
    done = length(numbers, "done", 0)
    numbers.facts.append(done * block < joined.newcomer.prompt)

    def code(run: SymbolicRun) -> Any:
        newcomer = joined.joining(run)
        newcomer = newcomer._replace(computed=run.number(done * block))
        members = tuple(joined.members(run)[: 2 if run.answer(z3.Bool("two")) else 1])
        behind = (make_request(run, "behind"),) if run.answer(z3.Bool("another waits")) else ()
        config, accepted = any_switches(run, block), list[Any]()
        waits = run.answer(done == 0)
        state = State(
            waiting=(newcomer, *behind) if waits else behind,
            running=members if waits else (*members, newcomer),
            **any_rest(run),
        )

        def fits(given: Any, current: Any, decoding: Any, joining: Any) -> bool:
            batch, whole = (*decoding, joining), (*members, newcomer)
            asked = given is config and len(batch) == len(whole) and all(map(is_, batch, whole))
            answer = z3.Bool(f"fits length {len(accepted)}")
            accepted.append(z3.And(answer, asked, bare(current) == tkv))
            return run.answer(answer)

        with (
            on_symbols(documented),
            any_constraints(run, SOUND) as constrained,
            stubs(pool_of, prefix_hit=lambda *_: SymbolicLength(run.number(z3.IntVal(0)))),
            stubs(documented, max_tkv=partial(_tkv_of, run, tkv, members)),
        ):
            revision = replace(constrained, fits_model_length=fits)
            _, decision = revision.decide(config, revision, state)
        ours = any(member.id == "new" for member in decision.members)
        chosen = decision.kind == "prefill" and ours
        end = documented.next_chunk(newcomer.prompt, newcomer.computed, CHUNK_BLOCKS * block, block)
        return chosen, bool(end[1] >= newcomer.prompt) or bool(unasked), accepted

    def obeyed(result: Any) -> Any:
        chosen, last, accepted = result
        return z3.Or(z3.BoolVal(not (chosen and last)), *accepted)

    return holds_on(numbers, paths(numbers, code), obeyed)


def _tkv_of(
    run: SymbolicRun, tkv: Any, members: tuple[Sequence, ...], lengths: Any, block: int
) -> Any:
    """Return `tkv` for the lengths of these members, and any number for others."""
    same = [
        bare(own) is bare(member.computed) for own, member in zip(lengths, members, strict=False)
    ]
    whole = len(lengths) == len(members) and all(same)
    return run.number(tkv if whole else z3.Int("tkv of others"))
