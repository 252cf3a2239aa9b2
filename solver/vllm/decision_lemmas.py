"""Runs whole decisions of vLLM's scheduler on symbols, with a few requests of any length.

Every setting that is not a feature may have any value, and so may the other fields of requests and
of the state, as long as they belong to no feature. An abort may have to be reported. The pool may
give any answer, except that it always has room for a request that is alone. `clamp` and `capped`
stand in for the model's functions that decide how much each request computes; `code_lemmas`
compares the two.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple, cast

import z3

from ...model.vllm import kv_cache, scheduler
from ...model.vllm.state import Sequence
from ..smt.execution import SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import Name, must_be, plain_id
from ..smt.terms import all_of
from . import symbols
from .symbols import Held, Settings, make_state, some

# Marks the pool if blocks were freed while other requests than the given holders had blocks.
WRONGLY_FREED = "wrongly freed"
PREEMPTION = "vllm.scheduler.preempt"
STEP = (
    "vllm.scheduler.schedule",
    "vllm.scheduler.advance_running",
    "vllm.scheduler.admit_waiting",
    PREEMPTION,
)
POLICIES = ("fcfs", "priority")
# The numbers of running and of waiting requests in a decision of one to three requests.
SIZES = tuple((runs, waits) for runs in range(4) for waits in range(4 - runs) if runs + waits)


class Symbolic(NamedTuple):
    """A request of the model, with symbols for its numbers."""

    prompt: Any
    generated: Any
    computed: Any
    tokens: Any
    ends: Any
    priority: Any
    arrival: Any
    runs: bool

    @classmethod
    def make(cls, numbers: Numbers, number: int, *, runs: bool) -> "Symbolic":
        prompt, tokens, ends = (
            some(numbers, f"{name} {number}", 1) for name in ("prompt", "tokens", "ends")
        )
        generated, computed = (some(numbers, f"{name} {number}") for name in ("own", "computed"))
        priority, arrival = (z3.Int(f"{name} {number}") for name in ("priority", "arrival"))
        symbolic = cls(prompt, generated, computed, tokens, ends, priority, arrival, runs)
        numbers.facts += [generated < ends, ends <= tokens, computed < prompt + generated]
        if not runs:
            numbers.facts.append(computed == 0)
        return symbolic

    @property
    def behind(self) -> Any:
        return self.prompt + self.generated - self.computed

    def of(self, run: SymbolicRun, number: int) -> Sequence:
        def whole(symbol: Any) -> Any:
            return run.number(symbol)

        def other(field: str) -> Any:
            return whole(z3.Int(f"{field} {number}"))

        holds: dict[str, Any] = {}
        if self.runs:
            holds = {field: other(field) for field in ("prefix_hit", "published")}
            holds["blocks"] = Held(other("blocks"))
        return Sequence(
            *(Name(number), whole(self.prompt), whole(self.tokens), whole(self.ends)),
            content=cast(Any, Held(other("content"))),
            computed=whole(self.computed),
            generated=whole(self.generated),
            priority=whole(self.priority),
            arrival=whole(self.arrival),
            **holds,
        )


def make_requests(
    numbers: Numbers, policy: Any, running: int, waiting: int, *later: Any
) -> list[Symbolic]:
    """Return `running` running and `waiting` waiting requests in order of arrival. Under the
    priority policy, the running ones may have arrived in any order, and the waiting ones are sorted
    by priority. `later` contains the arrivals of requests that are still to come."""
    requests = [Symbolic.make(numbers, n, runs=n < running) for n in range(running + waiting)]
    arrivals = [*(request.arrival for request in requests), *later]
    # Under the priority policy, the running requests may have been admitted in any order.
    in_order = running if policy == "priority" else 0
    numbers.facts += [first < second for first, second in pairwise(arrivals[in_order:])]
    if policy == "priority":
        numbers.facts += [arrival < other for arrival in arrivals[:running] for other in later]
        numbers.facts.append(z3.Distinct(arrivals))
        line = pairwise(requests[running:])
        numbers.facts += [ahead.priority <= behind.priority for ahead, behind in line]
    return requests


class Decided(NamedTuple):
    """A decision: its requests and limits in symbols, and all paths through the code."""

    numbers: Numbers
    requests: list[Symbolic]
    ran: list[str]
    budget: Any
    threshold: Any
    slots: Any
    chunks: Any
    taken: list[Any]


class Result(NamedTuple):
    """A decision on one path, with terms for its numbers.

    Attributes:
        hits: the cached tokens that each waiting request finds.
        turns: for each request, the budget left when its turn comes: the whole budget minus the
            shares given so far and not given back.
        asked_for: the tokens for which each scheduled request got blocks.
        asks_rightly: whether three things hold: the pool is always asked about a request of the
            state; admission is told the request's hit and whether another request runs; each
            preemption follows a refusal of blocks.
        gave_up: whether the last request that was preempted had itself found no blocks, so that the
            decision ended.
        uncomputed: the computed, hit and published numbers of each waiting request that holds no
            block.
    """

    scheduled: dict[str, Any]
    left: Any
    running: list[str]
    waiting: list[str]
    preempted: list[str]
    hits: dict[str, Any]
    turns: dict[str, Any]
    asked_for: dict[str, Any]
    asks_rightly: bool
    gave_up: bool
    uncomputed: list[tuple[Any, Any, Any]]


def run_decision(policy: Any, running: int, waiting: int, block: int, whole: Any = None) -> Decided:
    """Run a decision with this many running and waiting requests, each of which may hit any number
    of blocks of `block` tokens. If `whole` is given, it is called in place of the decision, with a
    configuration and a state.

    The pool is modelled as the set of requests that have blocks. It may refuse any request that is
    not alone.
    """
    numbers = Numbers()
    settings = Settings(numbers)
    budget, slots, threshold = (
        settings.numbers[name]
        for name in ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
    )
    chunks = z3.Bool("enable_chunked_prefill")
    numbers.facts.append(slots >= running)
    requests = make_requests(numbers, policy, running, waiting)

    def code(run: SymbolicRun) -> Any:
        config = settings.config(run, policy=policy, block_size=block)
        in_run = [request.of(run, n) for n, request in enumerate(requests)]
        questions: list[int] = []
        shares: dict[str, Any] = {}
        turns: dict[str, Any] = {}
        rightly, refused, gave_up = list[bool](), list[str](), list[bool]()
        hits, hit_tokens = dict[str, Any](), dict[str, Any]()

        def says(what: str, fact: Any = True) -> bool:
            questions.append(1)
            return run.answer(z3.And(z3.Bool(f"{what} {len(questions)}"), fact))

        def begins(request: Any) -> None:
            rightly.append(any(request is known for known in in_run))
            turns.setdefault(request.id, budget - sum(shares.values()))

        def grow(given: Any, pool: Any, request: Any, tokens: Any) -> Any:
            must_be(given, config)
            begins(request)
            if not (len(pool) == 1 or says("room")):
                refused.append(plain_id(request.id))
                return None
            shares[request.id] = bare(tokens)
            return request, pool

        def hit(given: Any, pool: Any, request: Any) -> Any:
            must_be(given, config)
            count = z3.Int(f"hit of {plain_id(request.id)}")
            hits[request.id], hit_tokens[request.id] = (), 0
            if says("hit", z3.And(count >= 1, count * block < bare(request.num_tokens))):
                hits[request.id] = SymbolicLength(run.number(count))
                hit_tokens[request.id] = run.number(count * block)
            return hits[request.id]

        def admit(given: Any, pool: Any, request: Any, found: Any, tokens: Any, beside: Any) -> Any:
            must_be(given, config)
            begins(request)
            rightly.append(bool(beside) == bool(pool) and found is hits[request.id])
            if beside and not says("room"):
                return None
            shares[request.id] = bare(tokens)
            joined = request._replace(computed=hit_tokens[request.id])
            return joined, pool | {plain_id(request.id)}

        def free(given: Any, pool: Any, victim: Any, holders: Any) -> Any:
            must_be(given, config)
            name = plain_id(victim.id)
            if {plain_id(holder.id) for holder in holders} | {name} != pool | {name}:
                return pool | {WRONGLY_FREED}
            shares.pop(victim.id, None)
            rightly.append(bool(refused))  # one victim for each refusal
            gave_up.append(refused == [name])
            refused.clear()
            return pool - {name}

        def clamp(given: Any, uncomputed: Any, left: Any) -> Any:
            must_be(given, config)
            return run.number(symbols.clamp(bare(uncomputed), threshold, bare(left)))

        def capped(given: Any, uncomputed: Any) -> Any:
            must_be(given, config)
            return run.number(symbols.capped(bare(uncomputed), threshold))

        holders = frozenset(map(str, range(running)))
        state = make_state(run, in_run, running, holders, z3.Int("arrived"))
        with (
            stubs(kv_cache, grow=grow, prefix_hit=hit, admit=admit, free=free),
            on_symbols(scheduler),
            stubs(scheduler, clamp=clamp, capped=capped),
        ):
            if whole is not None:
                return whole(run, config, state)
            plan = scheduler.schedule(config, state)
            return Result(
                {plain_id(name): bare(share) for name, share in plan.scheduled.items()},
                bare(plan.budget),
                [plain_id(request.id) for request in plan.running],
                [plain_id(request.id) for request in plan.waiting],
                [plain_id(name) for name in plan.preempted],
                {plain_id(name): bare(tokens) for name, tokens in hit_tokens.items()},
                {plain_id(name): turn for name, turn in turns.items()},
                {plain_id(name): share for name, share in shares.items()},
                all(rightly) and WRONGLY_FREED not in plan.pool,
                gave_up[-1:] == [True],
                [
                    (bare(request.computed), bare(request.prefix_hit), bare(request.published))
                    for request in plan.waiting
                    if type(request.blocks) is tuple and not request.blocks
                ],
            )

    ran = [str(n) for n in range(running)]
    taken = list(paths(numbers, code))
    return Decided(numbers, requests, ran, budget, threshold, slots, chunks, taken)


def in_decisions(
    make: Callable[..., Obligation], sizes: Iterable[tuple[int, int]], block: int
) -> Iterator[Obligation]:
    """Yield the lemma for both policies and for each of these numbers of requests. A lemma about
    fewer than two running requests is not about preemption."""
    for policy, size in product(POLICIES, sizes):
        found = make(policy, *size, block)
        code = tuple(name for name in found.code if size[0] > 1 or name != PREEMPTION)
        yield replace(found, code=code)


@lemma(
    "A decision stays within its budget and its slots, and each share is the minimum of uncomputed "
    "tokens, threshold and budget left (running and waiting requests).",
    *STEP,
    name="step_keeps_budget_{policy}_{running}_{waiting}",
)
def step_keeps_budget(policy: str, running: int, waiting: int, block: int, more: int) -> list[Any]:
    decision = run_decision(policy, running, waiting, block)
    names = [str(number) for number in range(running + waiting)]

    def keeps(plan: Result) -> Any:
        spent = z3.Sum([z3.IntVal(0), *plan.scheduled.values()])
        claims = [spent + plan.left == decision.budget - more, plan.left >= 0]
        claims.append(len(plan.running) <= decision.slots)
        for name, share in plan.scheduled.items():
            behind = decision.requests[int(name)].behind - plan.hits.get(name, 0)
            cap = symbols.capped(behind, decision.threshold)
            claims.append(z3.BoolVal(name in plan.turns))
            claims.append(plan.asked_for.get(name, 0) == share)
            left = plan.turns.get(name, decision.budget)
            claims += [share >= 1, share == symbols.clamp(behind, decision.threshold, left)]
            if name not in decision.ran:
                claims.append(z3.Or(decision.chunks, share == cap))
        claims.append(z3.BoolVal(plan.scheduled.keys() <= {*plan.running}))
        claims.append(z3.BoolVal(plan.scheduled.keys() == plan.asked_for.keys()))
        claims.append(z3.BoolVal(plan.asks_rightly))
        once = sorted([*plan.running, *plan.waiting]) == names
        claims += [z3.BoolVal(once), _waits_anew(plan)]
        for name in {*plan.running} - plan.scheduled.keys():
            # It was running before, and the decision ended before its turn: the budget was used up,
            # or a request found no blocks.
            ended = z3.Or(plan.left == 0, z3.BoolVal(plan.gave_up))
            claims.append(z3.And(z3.BoolVal(name in decision.ran), ended))
        return z3.And(claims)

    return holds_on(decision.numbers, decision.taken, keeps)


@lemma(
    "A decision keeps the first request and the order (running and waiting requests).",
    *STEP,
    name="decision_keeps_first_{policy}_{running}_{waiting}",
)
def decision_keeps_first(
    policy: str, running: int, waiting: int, block: int, more: int
) -> list[Any]:
    """Claim that the first running request (under the priority policy, the most important one)
    keeps its place.

    The first running request computes a token, unless the priority policy preempts it for another
    one. If no request runs, the first in line computes a token, unless chunking is off and its
    tokens exceed the budget. No request moves in front of one that stays running. Newcomers are the
    first in line, and preempted requests go back to their places in the queue. Each preemption
    follows a refusal of blocks, so one victim is preempted at a time. Admission is told whether any
    request runs. A step in which requests run and no token is computed preempts a request and
    admits none.

    If `more` is 1, make the guard's claim instead, which must fail: if several requests run, the
    claim forbids every preemption; otherwise, the first request computes two tokens.
    """
    decision = run_decision(policy, running, waiting, block)
    ran = decision.ran
    queue = [str(number) for number in range(running, running + waiting)]
    first = (ran or queue)[0]

    def kept(plan: Result) -> Any:
        stays = [name for name in plan.running if name in ran]
        inorder = stays == [name for name in ran if name not in plan.preempted]
        inorder = inorder and plan.running[: len(stays)] == stays
        back = [name for name in plan.waiting if name in plan.preempted]
        inorder = inorder and {*back} == {*plan.preempted}
        inorder = inorder and not (more and plan.preempted)
        came = plan.running[len(stays) :]
        inorder = inorder and came == queue[: len(came)]
        rest = queue[len(came) :]
        inorder = inorder and sorted(plan.waiting) == sorted([*back, *rest])
        gives_way = policy == "priority" and running > 1 and first in plan.preempted
        if policy == "fcfs":
            inorder = inorder and plan.waiting == [*back, *rest]
        if ran and not plan.scheduled:
            inorder = inorder and bool(plan.preempted) and len(plan.running) < len(ran)
        claims = [z3.BoolVal(inorder and plan.asks_rightly), _waits_anew(plan)]
        if first in plan.scheduled:
            claims.append(plan.scheduled[first] >= (1 if running > 1 else 1 + more))
        elif not ran:
            behind = decision.requests[0].behind - plan.hits.get(first, 0)
            cut = symbols.capped(behind, decision.threshold) > decision.budget
            claims.append(z3.And(z3.Not(decision.chunks), cut))
        elif not gives_way:
            claims.append(z3.BoolVal(False))
        if policy == "priority":
            claims += [_before(decision, *pair) for pair in pairwise(plan.waiting)]
        for name in plan.preempted:
            if policy == "priority":
                # Some other running request is more important.
                claims += [
                    z3.Or(
                        _before(decision, other_name, name),
                        z3.BoolVal(other_name in plan.preempted),
                    )
                    for other_name in ran
                    if other_name != name
                ]
        return z3.And(claims)

    return holds_on(decision.numbers, decision.taken, kept)


def _waits_anew(plan: Result) -> Any:
    """Return whether every waiting request, including preempted ones, has no block, and begins with
    its first token."""
    without_blocks = len(plan.uncomputed) == len(plan.waiting)
    return all_of(without_blocks, *(n == 0 for numbers in plan.uncomputed for n in numbers))


def _before(decision: Decided, name: str, other: str) -> Any:
    first, second = decision.requests[int(name)], decision.requests[int(other)]
    same = z3.And(first.priority == second.priority, first.arrival < second.arrival)
    return z3.Or(first.priority < second.priority, same)
