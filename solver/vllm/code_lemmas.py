"""Lemmas which show that vLLM's scheduler computes what the arithmetic lemmas assume.

The lemmas about any number of requests are pure arithmetic on shares, remaining budgets and missing
blocks. The lemmas in this module run the model's own functions on symbols (`smt.execution`), so a
wrong change to the scheduler makes one of them fail:

- `share_is_computed_as_in_lemmas`, `door_refuses_what_lemmas_assume`,
  `admission_decides_as_in_lemmas_N`, `growth_decides_as_in_lemmas_N`: functions of a single request
  agree with `symbols` and `admission_lemmas.gate`, for any number of tokens and with N blocks hit
  or held.
- `missing_blocks_follow_hit`: how many blocks a waiting request lacks, for hits of any number of
  blocks.
- `step_keeps_budget_...`, `decision_keeps_first_...`: about a whole decision (`decision_lemmas`).
- `completion_leaves_next_token_...`, `message_changes_only_known_requests`: about a whole step
  (`step_lemmas`).
- `run_begins_empty`, `arrival_joins_queue_...`, `abort_removes_only_...`,
  `blocks_given_back_are_free_N`: about the beginning of a run, arrivals and aborts between two
  steps, and N blocks that a request gives back (`arrival_lemmas`).
- `code_admits_first_in_line_N`: about a whole decision in which no request runs and N wait, with
  the model's own admission.
- `hit_leaves_last_token_N`, `hit_looks_up_each_block`: a prefix hit consists of whole blocks
  without the last known token, for prompts of up to N blocks and a token, and for one block of any
  number of known tokens.

Drafts, steps in flight, connectors, encoders, additional KV groups and control events are switched
off. Every other setting may have any value, unless the lemma needs a certain one.
"""

from collections.abc import Iterator
from operator import index
from types import SimpleNamespace
from typing import Any

import z3

from ...model import pool as blocks_of_pool
from ...model.pool import Pool, cached_blocks, free_blocks
from ...model.scenario import Request
from ...model.vllm import kv_cache, scheduler
from ...model.vllm.model import VllmModel
from ...model.vllm.state import Sequence
from ..smt.execution import SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import plain_id
from ..smt.pools import LONGEST, SAME, any_pool
from . import symbols
from .arrival_lemmas import gives_back, keeps_order
from .decision_lemmas import (
    SIZES,
    Symbolic,
    decision_keeps_first,
    in_decisions,
    step_keeps_budget,
)
from .step_lemmas import completion_leaves_next_token, message_changes_only_known_requests
from .symbols import Settings, blocks, make_state, some

BLOCK = 16  # tokens, unless the lemmas are about any size
FEW = 3  # blocks; the code hands them out one by one
UNBOUNDED = z3.Bool("no bound on the pool")  # as in `Settings`


def budget(block: int | None) -> list[Obligation]:
    return [
        *keeps_order(),
        share_is_computed_as_in_lemmas(),
        *in_decisions(step_keeps_budget, SIZES, block or BLOCK),
        *whole_steps(block),
        *(hit_leaves_last_token(block or BLOCK, known) for known in (1, 2)),
        hit_looks_up_each_block(symbols.block_of(block)),
    ]


def whole_steps(block: int | None) -> Iterator[Obligation]:
    few = (size for size in SIZES if sum(size) <= 2 or size == (3, 0))
    yield from in_decisions(completion_leaves_next_token, few, block or BLOCK)
    yield message_changes_only_known_requests()


def admission(block: int | None) -> list[Obligation]:
    admits = [
        admission_decides_as_in_lemmas(block or BLOCK, hit, idle)
        for hit in range(FEW)
        for idle in range(hit + 1)
    ]
    door, *grows = never_preempted(block)
    # The scheduler asks for blocks for a request that runs alone, or for the first in line.
    # Of two that run, one may be preempted, and waits without blocks.
    few = (size for size in SIZES if size[0] <= 1 or size == (2, 0))
    asks = in_decisions(decision_keeps_first, few, block or BLOCK)
    others = (
        missing_blocks_follow_hit(block or BLOCK),
        *asks,
        *whole_steps(block),
        *keeps_order(),
        *gives_back(),
    )
    return [door, *admits, *grows, *_admits_if_none_run(block), *others]


def _admits_if_none_run(block: int | None) -> list[Obligation]:
    return [code_admits_first_in_line(block or BLOCK, waiting) for waiting in (1, 2)]


def progress(block: int | None) -> list[Obligation]:
    door, *grows = never_preempted(block)
    return [
        *keeps_order(),
        *gives_back(),
        share_is_computed_as_in_lemmas(),
        door,
        *in_decisions(decision_keeps_first, SIZES, block or BLOCK),
        *whole_steps(block),
        *_admits_if_none_run(block),
        *grows,
    ]


def knobs(block: int | None) -> list[Obligation]:
    few = [size for size in SIZES if sum(size) <= 2]
    shares = in_decisions(step_keeps_budget, few, block or BLOCK)
    return [*never_preempted(block), *shares, *whole_steps(block), *keeps_order(), *gives_back()]


def never_preempted(block: int | None) -> list[Obligation]:
    size = block or BLOCK
    grows = (growth_decides_as_in_lemmas(size, held) for held in (1, 2))
    return [door_refuses_what_lemmas_assume(size), *grows]


@lemma(
    "`clamp` and `capped` compute the same share as the lemmas.",
    "vllm.scheduler.clamp",
    "vllm.scheduler.capped",
)
def share_is_computed_as_in_lemmas(more: int) -> list[Any]:
    numbers = Numbers()
    settings = Settings(numbers)
    behind, left = some(numbers, "behind", 1), some(numbers, "left", 1)
    threshold = settings.numbers["long_prefill_token_threshold"]

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run)
        wanted: Any = run.number(behind)
        share = scheduler.clamp(config, wanted, run.number(left))
        return bare(share), bare(scheduler.capped(config, wanted))

    def as_in_lemmas(result: Any) -> Any:
        share, cap = result
        same = share == symbols.clamp(behind, threshold, left) + more
        return z3.And(same, cap == symbols.capped(behind, threshold))

    return holds_on(numbers, paths(numbers, code), as_in_lemmas)


@lemma(
    "The check on arrival accepts exactly the requests that fit in the model's length, pool and "
    "budget.",
    "vllm.model.VllmModel.refusal",
)
def door_refuses_what_lemmas_assume(block: int, more: int) -> list[Any]:
    """Claim that the check on arrival rejects exactly the requests that exceed the model's length,
    the pool or, without chunking, the budget. The prompt has two segments.

    If `more` is 1, make the guard's claim instead, which must fail: the claim assumes that the
    model's length is one token shorter.
    """
    numbers = Numbers()
    settings = Settings(numbers)
    prompt, tokens = some(numbers, "prompt", 1), some(numbers, "tokens", 1)
    names = "max_model_len", "num_blocks", "max_num_batched_tokens"
    longest, pool, budget = (settings.numbers[name] for name in names)
    chunks = z3.Bool("enable_chunked_prefill")

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run, block_size=block)
        first: Any = run.number(z3.Int("segment"))
        segments: Any = (("first", first), ("second", run.number(prompt) - first))
        most: Any = run.number(tokens)
        request = Request(id="0", arrival=0, prompt=segments, max_tokens=most)
        return VllmModel(config).refusal(request) is None

    computed = prompt + tokens - 1
    passes = z3.And(
        prompt + tokens + more <= longest,
        z3.Or(UNBOUNDED, blocks(numbers, block, computed) <= pool),
        z3.Or(chunks, computed <= budget),
    )
    return holds_on(numbers, paths(numbers, code), lambda let_in: passes == let_in)


def _maybe_unbounded(run: SymbolicRun, pool: Pool) -> Pool:
    return pool._replace(size=None) if run.answer(UNBOUNDED) else pool


def _leaves(left: Any, free: Any) -> Any:
    """Return whether `left` is this number of free blocks, or None if the pool has no bound."""
    return UNBOUNDED if left is None else bare(left) == free


def any_request(run: SymbolicRun, prompt: Any, own: Any) -> Sequence:
    """Return a waiting request with a prompt of `prompt` tokens and `own` generated tokens. Its
    other fields may have any value, as long as they belong to no feature."""
    names = ("max_tokens", "output_len", "priority", "arrival")
    others: Any = {name: run.number(z3.Int(name)) for name in names}
    length: Any = run.number(prompt)
    generated: Any = run.number(own)
    return Sequence("0", length, content=SAME, generated=generated, **others)


@lemma(
    "`admit` decides like the gate of the lemmas, and takes as many blocks (hits, idle hits).",
    "vllm.kv_cache.admit",
    "allocator.hold",
    "pool.take",
    "pool.touch",
    name="admission_decides_as_in_lemmas_{hit}_{idle}",
)
def admission_decides_as_in_lemmas(block: int, hit: int, idle: int, more: int) -> list[Any]:
    """Claim that `kv_cache.admit` decides as `admission_lemmas.gate` does, and leaves as many
    blocks free.

    The request finds `hit` blocks, of which `idle` are held by no request. Two other free blocks
    may hold the content of the first one. If `more` is 1, make the guard's claim instead, which
    must fail: one more block is reserved.
    """
    numbers = Numbers()
    known, tokens = some(numbers, "known", 1), some(numbers, "tokens", 1)
    own = numbers.fresh("own", 0, known - 1)
    free, reserve = some(numbers, "free", idle), some(numbers, "reserve")
    whole, runs, settings = z3.Bool("whole"), z3.Bool("runs"), Settings(numbers)
    covered = hit * block + tokens
    numbers.facts += [covered <= known, covered <= FEW * block]

    def code(run: SymbolicRun) -> Any:
        config = settings.config(
            run,
            block_size=block,
            max_model_len=run.number(known),
            reserve_full_isl=run.truth(whole),
            watermark_blocks=run.number(reserve),
        )
        hits = tuple(range(100, 100 + hit))
        shared = hits[:1] if not idle else ()
        pool = _maybe_unbounded(run, any_pool(run, free, block, idle=hits[:idle], shared=shared))
        request = any_request(run, known - own, own)
        share = run.number(tokens)
        beside = run.answer(runs)
        admitted = kv_cache.admit(config, pool, request, hits, share, beside)
        if admitted is None:
            return None
        holder, after = admitted
        return len(holder.blocks), free_blocks(after)

    needed = z3.If(whole, known, covered)
    missing = blocks(numbers, block, needed) - hit + idle
    passes = z3.Or(UNBOUNDED, missing + z3.If(runs, reserve + more, 0) <= free)
    first = blocks(numbers, block, covered)

    def as_in_lemmas(result: Any) -> Any:
        if result is None:
            return z3.Not(passes)
        held, left = result
        return z3.And(passes, held == first, _leaves(left, free - idle - (first - hit)))

    return holds_on(numbers, paths(numbers, code), as_in_lemmas)


@lemma(
    "A waiting request lacks the blocks of its tokens that it does not hit, and those that it hits "
    "and that no request holds.",
    "vllm.kv_cache.missing",
)
def missing_blocks_follow_hit(block: int, more: int) -> list[Any]:
    """Claim this for a hit of any number of blocks. If `more` is 1, make the guard's claim instead,
    which must fail: it expects that one block more is missing."""
    numbers = Numbers()
    known, tokens = some(numbers, "known", 1), some(numbers, "tokens", 1)
    own, hit = numbers.fresh("own", 0, known - 1), some(numbers, "hit")
    idle, whole = numbers.fresh("idle", 0, hit), z3.Bool("reserve_full_isl")
    settings = Settings(numbers)
    covered = hit * block + tokens
    numbers.facts += [covered <= known, known <= settings.numbers["max_model_len"]]

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run, block_size=block)
        request = any_request(run, known - own, own)
        found: Any = SymbolicLength(run.number(hit))
        with on_symbols(kv_cache), stubs(kv_cache, unheld=lambda *_: run.number(idle)):
            return bare(kv_cache.missing(config, Pool(), request, found, run.number(tokens)))

    needed = blocks(numbers, block, z3.If(whole, known, covered)) - hit + idle + more
    return holds_on(numbers, paths(numbers, code), lambda lacks: lacks == needed)


@lemma(
    "`grow` succeeds if and only if the blocks are free, and takes as many (blocks held).",
    "vllm.kv_cache.grow",
    "allocator.hold",
    "pool.take",
    name="growth_decides_as_in_lemmas_{held}",
)
def growth_decides_as_in_lemmas(block: int, held: int, more: int) -> list[Any]:
    """Claim that `kv_cache.grow` decides as the lemmas assume for a request that holds `held`
    blocks."""
    numbers = Numbers()
    computed, tokens, free = (
        some(numbers, "computed", 1),
        some(numbers, "tokens", 1),
        some(numbers, "f"),
    )
    numbers.facts += [computed > (held - 1) * block, computed <= held * block]
    numbers.facts.append(computed + tokens <= (held + FEW) * block)
    known, own = some(numbers, "known", 1), some(numbers, "own")
    settings, published = Settings(numbers), numbers.fresh("published", 0, held)

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run, block_size=block, max_model_len=LONGEST)
        pool = _maybe_unbounded(run, any_pool(run, free, block))
        request = any_request(run, known, own)._replace(
            computed=run.number(computed),
            prefix_hit=run.number(z3.Int("prefix_hit")),
            blocks=tuple(range(100, 100 + held)),
            published=index(run.number(published)),
        )
        grown = kv_cache.grow(config, pool, request, run.number(tokens))
        if grown is None:
            return None
        return len(grown[0].blocks), free_blocks(grown[1])

    after = blocks(numbers, block, computed + tokens)

    def as_in_lemmas(result: Any) -> Any:
        fits = z3.Or(UNBOUNDED, after - held + more <= free)
        if result is None:
            return z3.And(after > held, z3.Not(fits))
        has, left = result
        taken = after - held
        return z3.And(z3.Or(taken <= 0, fits), has == after, _leaves(left, free - taken))

    return holds_on(numbers, paths(numbers, code), as_in_lemmas)


@lemma(
    "A hit is all cached blocks except that of the last token (blocks of the prompt).",
    "pool.cached_blocks",
    name="hit_leaves_last_token_{size}",
)
def hit_leaves_last_token(block: int, size: int, more: int) -> list[Any]:
    """Claim that `pool.cached_blocks` never finds the last token, even if every block is cached.

    The prompt has up to `size` blocks plus one token. If `more` is 1, make the guard's claim
    instead, which must fail: the hit may include the last token.
    """

    class Everything(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return (1,)

    numbers = Numbers()
    known = numbers.fresh("known", 1, size * block + 1)

    def code(run: SymbolicRun) -> Any:
        tokens: Any = run.number(known)
        pool = Pool(cached=Everything())
        return len(cached_blocks(pool, (("p", tokens),), tokens, block))

    return holds_on(
        numbers,
        list(paths(numbers, code)),
        lambda hit: z3.And(hit * block <= known - 1 - more, (hit + 1) * block > known - 1),
    )


@lemma(
    "In known tokens of any number, each whole block before the last token is looked up once.",
    "vllm.kv_cache.prefix_hit",
    "pool.cached_blocks",
)
def hit_looks_up_each_block(block: Any, more: int) -> list[Any]:
    """Claim that the loop visits each whole block before the request's last token, and no other.
    Also claim that each iteration looks up the tokens up to the end of its block, hits that block
    and lets the loop go on.

    Every block is cached. If `more` is 1, make the guard's claim instead, which must fail: at least
    one token lies between the last visited block and the last token.
    """
    numbers = symbols.make_numbers(block)
    prompt, generated = some(numbers, "prompt", 1), some(numbers, "own")
    place = some(numbers, "place")
    known = prompt + generated

    def code(run: SymbolicRun) -> Any:
        loops, found, resumed = list[Any](), list[Any](), list[Any]()

        class Everything(dict[Any, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                found.append(sum(bare(length) for _, length in key))
                return (1,)

        def visit(start: Any, stop: Any) -> Any:
            loops.append((bare(start), bare(stop)))
            if run.answer(z3.And(place >= bare(start), place < bare(stop))):
                yield run.number(place)
                resumed.append(place)

        config: Any = SimpleNamespace(
            block_size=block if isinstance(block, int) else run.number(block),
            enable_prefix_caching=True,
            more_groups=(),
            lookahead=0,
        )
        length: Any = run.number(prompt)
        request = Sequence(
            *("0", length, 9, 9), content=(("p", length),), generated=run.number(generated)
        )
        with stubs(blocks_of_pool, range=visit):
            hit = kv_cache.prefix_hit(config, Pool(cached=Everything()), request)
        return loops, found, len(resumed), len(hit)

    def once(result: Any) -> Any:
        loops, found, resumed, hits = result
        if len(loops) != 1 or len(found) > 1 or not hits == resumed == len(found):
            return z3.BoolVal(False)
        [(start, stop)] = loops
        before = (stop - 1) * block
        claims = [start == z3.IntVal(1)]
        claims += [before <= known - 1 - more, before + block > known - 1]
        claims += [tokens == place * block for tokens in found]
        return z3.And(claims)

    return holds_on(numbers, list(paths(numbers, code)), once)


@lemma(
    "A decision in which no request runs admits the first in line (waiting requests).",
    "vllm.scheduler.admit_waiting",
    "vllm.kv_cache.admit",
    name="code_admits_first_in_line_{waiting}",
)
def code_admits_first_in_line(block: int, waiting: int, reserve: int) -> list[Any]:
    """Claim that a whole decision admits the first in line if no request runs, under both policies.
    The check on arrival has accepted this request. Up to two of its blocks are cached, and free.

    If `reserve` is 1, make the guard's claim instead, which must fail: the check on arrival assumed
    one block more than the pool has.
    """
    numbers = Numbers()
    request, *others = (Symbolic.make(numbers, n, runs=False) for n in range(waiting))
    settings = Settings(numbers)
    pool, budget = some(numbers, "pool", 1), settings.numbers["max_num_batched_tokens"]
    cached, chunks = numbers.fresh("cached", 0, FEW - 1), z3.Bool("enable_chunked_prefill")
    longest = request.prompt + request.tokens - 1
    numbers.facts += [
        settings.numbers["max_model_len"] > longest,
        z3.Or(UNBOUNDED, blocks(numbers, block, longest) <= pool + reserve),
        z3.Or(chunks, longest <= budget),
        cached * block < request.prompt + request.generated,
        pool >= cached,
    ]

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run, block_size=block)
        hits = tuple(range(100, 100 + index(run.number(cached))))
        blocks_free = Pool(
            run.number(pool - len(hits)), (), 1, tuple((number, None) for number in hits)
        )
        blocks_free = _maybe_unbounded(run, blocks_free)
        queue = tuple(other.of(run, n) for n, other in enumerate((request, *others)))
        with stubs(
            kv_cache,
            prefix_hit=lambda config, pool, request: hits if request.id == "0" else (),
            hold=lambda config, pool, number, tokens: (number, pool),
        ):
            state = make_state(run, queue, 0, blocks_free, z3.Int("arrived"))
            plan = scheduler.schedule(config, state)
        first = plain_id(plan.running[0].id) if plan.running else None
        return first, bare(plan.scheduled.get("0", 0))

    def admits(result: Any) -> Any:
        first, share = result
        return z3.And(z3.BoolVal(first == "0"), share >= 1)

    return holds_on(numbers, list(paths(numbers, code)), admits)
