"""Lemmas about the beginning of a run, arrivals, aborts between two steps, and the blocks that a
request gives back. As in `decision_lemmas`, there are a few requests of any length."""

from collections.abc import Iterator
from itertools import product
from operator import index
from typing import Any, NamedTuple, cast

import z3

from ...model.pool import Pool, free_blocks
from ...model.scenario import Request
from ...model.vllm import kv_cache
from ...model.vllm.model import VllmModel
from ...model.vllm.state import Sequence, State
from ..smt.beginning import run_begins_empty
from ..smt.execution import SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.passed_on import Name, plain_id
from .decision_lemmas import POLICIES, Symbolic, make_requests
from .symbols import Settings, make_state, some

HELD = (1, 2, 3)  # blocks of a request that gives them back
QUEUES = ((0, 0), (1, 1), (0, 2), (2, 0))  # the numbers of running and of waiting requests


def keeps_order() -> Iterator[Obligation]:
    yield run_begins_empty(lambda run, numbers: VllmModel(Settings(numbers).config(run)))
    for policy, size in product(POLICIES, QUEUES):
        yield arrival_joins_queue(policy, *size)
        yield abort_removes_only(policy, *size)


def gives_back() -> Iterator[Obligation]:
    return (blocks_given_back_are_free(held) for held in HELD)


class Queued(NamedTuple):
    """Symbolic requests, of which the first ones run, and the arrival number of the next
    request."""

    numbers: Numbers
    settings: Settings
    requests: list[Symbolic]
    arrived: Any

    @classmethod
    def make(cls, policy: str, running: int, waiting: int) -> "Queued":
        numbers = Numbers()
        arrived = some(numbers, "arrived")
        made = make_requests(numbers, policy, running, waiting, arrived)
        return cls(numbers, Settings(numbers), made, arrived)

    def state(self, run: SymbolicRun, running: int) -> State:
        made = [request.of(run, n) for n, request in enumerate(self.requests)]
        return make_state(run, made, running, object(), self.arrived)


@lemma(
    "A request that arrives takes its place in the queue, uncomputed, and changes nothing else "
    "(running and waiting requests).",
    *("vllm.model.VllmModel.arrive", "vllm.scheduler.arrive", "vllm.queue.enqueued"),
    name="arrival_joins_queue_{policy}_{running}_{waiting}",
)
def arrival_joins_queue(policy: str, running: int, waiting: int, more: int) -> list[Any]:
    """Claim that a newcomer joins the queue at its end or, under the priority policy, behind all
    requests that are at least as important.

    Its prompt has two segments. If `more` is 1, make the guard's claim instead, which must fail: it
    claims that the newcomer has one more token to generate.
    """
    queued = Queued.make(policy, running, waiting)
    numbers = queued.numbers
    prompt, tokens, ends = (some(numbers, name, 1) for name in ("prompt", "tokens", "ends"))
    priority = z3.Int("priority")
    numbers.facts.append(ends <= tokens)

    def code(run: SymbolicRun) -> Any:
        before = queued.state(run, running)
        length, most, last, important = map(run.number, (prompt, tokens, ends, priority))
        first: Any = run.number(z3.Int("segment"))
        ends_early = run.answer(z3.Bool("output_len is given"))
        request = Request(
            id=Name("new"),
            arrival=run.number(z3.Int("step")),
            prompt=(("first", first), ("second", length - first)),
            max_tokens=most,
            output_len=last if ends_early else None,
            priority=important,
        )
        config = queued.settings.config(run, policy=policy)
        after = VllmModel(config).arrive(before, request)
        place = next((n for n, s in enumerate(after.waiting) if plain_id(s.id) == "new"), None)
        if place is None:
            return None
        newcomer = after.waiting[place]
        others = (*after.waiting[:place], *after.waiting[place + 1 :])
        numbers = (
            *(newcomer.prompt, newcomer.max_tokens, newcomer.output_len, newcomer.priority),
            *(newcomer.arrival, newcomer.computed, newcomer.generated, after.arrived),
        )
        alone = newcomer._replace(
            **dict.fromkeys(("prompt", "max_tokens", "output_len", "priority", "arrival"), 0),
            **{"content": (), "id": "new"},
        )
        plain = alone == type(alone)("new", 0, 0, 0)
        kept = after._replace(waiting=before.waiting, arrived=before.arrived)
        same = is_same(others, before.waiting) and unchanged(kept, before)
        return place, [bare(number) for number in numbers], plain and same, ends_early

    def joins(result: Any) -> Any:
        if result is None:
            return z3.BoolVal(False)
        place, joined, same, ends_early = result
        last = ends if ends_early else tokens
        expected = (prompt, tokens + more, last, priority, queued.arrived, 0, 0, queued.arrived + 1)
        claims = [z3.BoolVal(same)]
        claims += [number == wanted for number, wanted in zip(joined, expected, strict=True)]
        if policy == "fcfs":
            claims.append(z3.BoolVal(place == waiting))
        else:
            in_line = queued.requests[running:]
            claims += [other.priority <= priority for other in in_line[:place]]
            claims += [other.priority > priority for other in in_line[place:]]
        return z3.And(claims)

    return holds_on(numbers, list(paths(numbers, code)), joins)


@lemma(
    "An abort removes its request, reports it, and changes no other request (running and waiting "
    "requests).",
    *("vllm.model.VllmModel.abort", "vllm.scheduler.abort"),
    name="abort_removes_only_{policy}_{running}_{waiting}",
)
def abort_removes_only(policy: str, running: int, waiting: int, more: int) -> list[Any]:
    """Claim that an abort of any of the requests, or of an unknown id, changes nothing but the
    request's queue, its blocks and the list of aborts to report.

    If `more` is 1, make the guard's claim instead, which must fail: it claims that no abort is to
    be reported afterwards.
    """
    queued = Queued.make(policy, running, waiting)
    numbers = queued.numbers

    def code(run: SymbolicRun) -> Any:
        before = queued.state(run, running)
        freed: list[str] = []

        def free(_: Any, pool: Any, request: Any, *__: Any) -> Any:
            freed.append(plain_id(request.id))
            return pool

        requests = (*before.running, *before.waiting)
        victim = next((n for n in range(len(requests)) if run.answer(z3.Bool(f"aborts {n}"))), None)
        name = "new" if victim is None else str(victim)
        with stubs(kv_cache, free=free):
            config = queued.settings.config(run, policy=policy)
            after = VllmModel(config).abort(before, Name(name))
        if victim is None:
            return after is before and not freed, len(tuple(before.aborted))
        gone = requests[victim]
        kept = [
            is_same(left, [each for each in queue if each is not gone])
            for left, queue in ((after.running, before.running), (after.waiting, before.waiting))
        ]
        reported = [plain_id(each) for each in after.aborted]
        queues = {"running": before.running, "waiting": before.waiting}
        rest = unchanged(after._replace(**queues, aborted=before.aborted), before)
        expected = [*map(plain_id, before.aborted), name]
        return all(kept) and rest and reported == expected and freed == [name], len(reported)

    def removes(result: Any) -> Any:
        right, reported = result
        return z3.BoolVal(right and not (more and reported))

    return holds_on(numbers, list(paths(numbers, code)), removes)


@lemma(
    "A request gives back each of its blocks that no other request holds, once (blocks).",
    *("vllm.kv_cache.free", "pool.give_back"),
    name="blocks_given_back_are_free_{held}",
)
def blocks_given_back_are_free(held: int, more: int) -> list[Any]:
    """Claim that the pool gains exactly the blocks that only this request holds.

    Any number of the request's tokens is computed, any number of its blocks can be found, it may
    have had any hit, and another request may share its first block. One free block has the same
    content as that block, and another one has none. If `more` is 1, make the guard's claim instead,
    which must fail: it claims that the request gives back one block more.
    """
    size, numbers = 4, Numbers()
    settings = Settings(numbers)
    computed = numbers.fresh("computed", 0, held * size)
    published = numbers.fresh("published", 0, held)
    prompt = held * size + 1

    def code(run: SymbolicRun) -> Any:
        others: Any = {
            field: run.number(z3.Int(field))
            for field in ("max_tokens", "output_len", "prefix_hit", "priority", "arrival")
        }
        request = Sequence(
            *(Name("0"), prompt),
            content=(("p", prompt),),
            computed=cast(Any, run.number(computed)),
            published=index(run.number(published)),
            blocks=tuple(range(20, 20 + held)),
            **others,
        )
        shares = run.answer(z3.Bool("another shares a block"))
        other = request._replace(id=Name("1"), blocks=(20,) if shares else (30,))
        content = request.name(0, size)
        pool = Pool(40, (7,), 31, ((8, content), (9, None)), {content: (8, 20)})
        config = settings.config(run, block_size=size)
        after = kv_cache.free(config, pool, request, (other, request))
        free = sorted([*after.head, *(number for number, _ in after.tail)])
        gained = held - shares + more
        return free == sorted([7, 8, 9, *request.blocks[shares:]]) and (
            free_blocks(after) == 13 + gained
        )

    return holds_on(numbers, list(paths(numbers, code)), z3.BoolVal)


def is_same(queue: Any, other: Any) -> bool:
    return len(queue) == len(other) and all(a is b for a, b in zip(queue, other, strict=True))


def unchanged(after: State, before: State) -> bool:
    return all(getattr(after, name) is getattr(before, name) for name in State.__struct_fields__)
