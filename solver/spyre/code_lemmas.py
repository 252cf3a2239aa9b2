"""Lemmas which show that Spyre's scheduler computes what the arithmetic lemmas assume.

The lemmas on chunks, lengths, promised blocks and fairness hold for any number of requests, but
they are pure arithmetic. The lemmas in this module, in `constraint_lemmas`, in `promise_lemmas` and
in `fairness_lemmas` run the model's own functions on symbols (`smt.execution`), so that a wrong
change to the scheduler makes one of them fail. The other modules (`admission_lemmas`,
`formula_lemmas`, `peak_lemmas`, `progress_lemmas`) run the code as well.

This module is about chunks: the functions that plan a chunk agree with `chunk_lemmas.plan`, a
request starts with exactly the tokens of its hit computed, and a step runs the planned chunk or
leaves the request as it was. Arrivals, and aborts of other requests, leave it as it was, too.
`whole_step_lemmas` is about what a step does between the functions that other lemmas run.
"""

from dataclasses import replace
from operator import index
from typing import Any

import z3

from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, scheduler
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.state import Sequence, State
from ..smt.beginning import run_begins_empty
from ..smt.execution import SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import must_be
from . import chunk_lemmas
from .step_lemmas import (
    abort_only_removes,
    arrival_waits_uncomputed,
    model_decides_by_its_revision,
)
from .surroundings import (
    BLOCK,
    CHUNK_BLOCKS,
    any_constraints,
    any_switches,
    in_company,
    make_request,
    same_pool,
)
from .symbolic_admission import length
from .symbolic_state import StepConfiguration, any_rest
from .whole_step_lemmas import (
    chunk_ignores_others,
    decode_step_leaves_others,
    step_passes_states_on,
)

HIT_BLOCKS = 3  # the largest hit, in blocks, with which `blocks.admit` is run
LENGTHS = ("prompt", "max_tokens", "output_len", "prefix_hit")  # a chunk changes none of these


def obligations(block: int | None) -> list[Obligation]:
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
            replace(
                step_runs_planned_chunk(size, name),
                code=("spyre.scheduler.step", "spyre.forward.compute_chunk", code),
            )
            for name, code in counted.items()
        ),
        *(chunk_ignores_others(size, name) for name in counted),
        *(decode_step_leaves_others(size, name) for name in counted),
        *(lemma for name in counted for lemma in between_steps(size, name)),
    ]


def between_steps(block: int, name: str) -> list[Obligation]:
    """Return the lemmas on the beginning of a run of a revision, and on what may happen between two
    steps."""
    revision = REVISIONS[name]
    step = StepConfiguration(revision, block=block, chunk=CHUNK_BLOCKS * block)
    found = {
        "systems.ReferenceModel.initial": run_begins_empty(
            lambda run, _: SpyreModel(any_switches(run, block), revision)
        ),
        "spyre.scheduler.arrive": arrival_waits_uncomputed(step, 1),
        "spyre.scheduler.abort": abort_only_removes(step, 1),
    }
    decided = model_decides_by_its_revision(revision)
    return [
        *(
            replace(lemma, name=f"{lemma.name}_{name}", code=(code,))
            for code, lemma in found.items()
        ),
        step_passes_states_on(block, name),
        replace(decided, name=f"{decided.name}_{name}", code=("spyre.model.make_model",)),
    ]


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
    "The last-chunk constraints bind in the last chunk, also after a hit, and in no other.",
    "spyre.documented.is_held_to_last_chunk",
)
def last_chunk_is_as_in_lemmas(block: int, more: int) -> list[Any]:
    numbers, plan = _any_plan(block)

    done = z3.Int("done before")
    numbers.facts += [done >= 0, done * block == plan.computed]

    def code(run: SymbolicRun) -> Any:
        starts = run.answer(z3.Bool("starts"))
        computed = 0 if starts else plan.computed
        request = make_request(run, "0", prompt=plan.prompt, computed=computed)
        hit = SymbolicLength(run.number(done))
        config, state = any_switches(run, block), State(**any_rest(run))
        with on_symbols(documented), stubs(pool_of, prefix_hit=lambda *_: hit):
            return documented.is_held_to_last_chunk(config, state, request)

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
        config = any_switches(run, block)
        with stubs(pool_of, prefix_hit=lambda *_: found):
            started, _ = pool_of.admit(config, State((newcomer,), **any_rest(run)), newcomer)
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
    """Claim that a step either runs the planned chunk or leaves the request unchanged. The chunk
    may be the first or a later one, after any prefix hit.

    A second request may decode or be paused, and may be aborted within the step. A third one may
    wait.
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
            stubs(pool_of, prefix_hit=prefix_hit, admit=admit, hold=hold, release=same_pool),
            stubs(documented, written=lambda *_: [], max_tkv=lambda *_: 1),
            stubs(scheduler, observe=lambda *seen: observed.append(seen)),
            any_constraints(run, revision) as constrained,
        ):
            after, _ = SpyreModel(config, constrained).step(state, inside)
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
