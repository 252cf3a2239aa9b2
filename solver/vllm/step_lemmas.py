"""Runs whole steps of vLLM's scheduler on symbols, with one or two requests, and what a step tells
the worker."""

from typing import Any

import z3

from ...model.vllm import completion, scheduler, worker
from ...model.vllm.model import VllmModel
from ...model.vllm.queue import Plan
from ...model.vllm.state import Sequence, State
from ..smt.execution import SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import lemma
from ..smt.passed_on import Name, plain_id
from .decision_lemmas import run_decision
from .symbols import Reported, Settings

ABORTS = z3.Bool("the first is aborted within the step")


@lemma(
    "A step stays within its budget, and each request that continues has a token to compute "
    "(running and waiting requests).",
    *("vllm.model.VllmModel.step", "vllm.completion.carry_out", "vllm.completion.complete"),
    name="completion_leaves_next_token_{policy}_{running}_{waiting}",
)
def completion_leaves_next_token(
    policy: str, running: int, waiting: int, block: int, more: int
) -> list[Any]:
    """Claim that a whole step decides about the given state, counts the tokens that it computes,
    and stays within its budget. It emits tokens only for requests whose known tokens are all
    computed, keeps the order of the queues, and leaves blocks only to running requests. It changes
    nothing else, and no abort is left to report.

    Also claim that a request that continues has a token left to compute. The first request may be
    aborted within the step. If `more` is 1, make the guard's claim instead, which must fail: it
    claims two tokens.
    """

    def whole(run: SymbolicRun, config: Any, state: Any) -> Any:
        plans, given = [], list[Any]()

        def carry_out(config: Any, of: Any, plan: Any, *others: Any) -> Any:
            plans.append(plan)
            given.append(of)
            return unchanged(config, of, plan, *others)

        def schedule(config: Any, of: Any, *others: Any, **options: Any) -> Any:
            given.append(of)
            return decides(config, of, *others, **options)

        def observe(_: Any, after: Any, kind: Any, plan: Any, emitted: Any, finished: Any) -> Any:
            return {"emitted": emitted, "finished": finished, "blocks": {}}

        unchanged, decides = completion.carry_out, scheduler.schedule
        with (
            stubs(scheduler, schedule=schedule),
            stubs(completion, carry_out=carry_out, observe=observe, kind_of=lambda _: ""),
            stubs(worker, add_message=lambda config, state, plan, after, seen: (after, seen)),
        ):
            inside: Any = Reported(run, ABORTS, Name("0"))
            after, seen = VllmModel(config).step(state, inside)
        [plan] = plans
        continues = {
            plain_id(request.id): (
                bare(request.computed),
                bare(request.num_uncomputed_tokens),
                bare(request.generated),
            )
            for request in after.running
        }
        began = {plain_id(request.id): bare(request.computed) for request in plan.running}
        shares = {plain_id(name): bare(share) for name, share in plan.scheduled.items()}
        computed = [
            (name, share, began[name], continues.get(name), name in seen["emitted"])
            for name, share in shares.items()
        ]
        queues = [
            [plain_id(request.id) for request in queue]
            for queue in (plan.running, after.running, plan.waiting, after.waiting)
        ]
        same = len(given) == 2 and all(of is state for of in given)
        same = same and _leaves_rest(state, plan, after)
        return computed, {plain_id(name) for name in seen["finished"]}, queues, after.pool, same

    decision = run_decision(policy, running, waiting, block, whole)

    def right(result: Any) -> Any:
        computed, finished, (ran, runs, waited, waits), holders, same = result
        spent = z3.Sum([z3.IntVal(0), *(share for _, share, *_ in computed)])
        claims = [spent <= decision.budget]
        kept = same and runs == [name for name in ran if name in runs]
        kept = kept and waits == [name for name in waited if name in waits]
        kept = kept and holders == {*runs} and {*runs, *waits, *finished} >= {*ran, *waited}
        claims.append(z3.BoolVal(kept))
        claims += [z3.BoolVal(name == "0") for name in waited if name not in waits]
        for name, share, began, continues, emits in computed:
            request = decision.requests[int(name)]
            caught_up = began + share == request.prompt + request.generated
            if name in decision.ran:
                claims.append(began == request.computed)
            if name == "0" and continues is None:
                ended = z3.And(caught_up, request.generated + 1 == request.ends)
                claims.append(z3.If(ABORTS, z3.BoolVal(not emits), z3.And(ended, emits)))
            elif continues is None:
                claims += [caught_up, request.generated + 1 == request.ends, z3.BoolVal(emits)]
            else:
                counted, left, generated = continues
                known = z3.If(caught_up, request.generated + 1, request.generated)
                claims += [counted == began + share, left >= 1 + more, generated == known]
                claims.append(z3.Or(z3.Not(caught_up), request.generated + 1 < request.ends))
                claims += [caught_up == emits, z3.BoolVal(name not in finished)]
                claims += [z3.Not(ABORTS)] * (name == "0")
        return z3.And(claims)

    return holds_on(decision.numbers, decision.taken, right)


def _leaves_rest(before: State, plan: Any, after: State) -> bool:
    """Return whether a step changes nothing that `completion_leaves_next_token` is not about."""
    planned = {plain_id(request.id): request for request in (*plan.running, *plan.waiting)}
    requests = (*after.running, *after.waiting)
    return after.aborted == () and all(
        getattr(now, field) is getattr(then, field)
        for now, then, changes in (
            (after, before, ("running", "waiting", "pool", "aborted")),
            *((each, planned[plain_id(each.id)], ("computed", "generated")) for each in requests),
        )
        for field in type(now).__struct_fields__
        if field not in changes
    )


@lemma(
    "The message to the worker changes nothing in the state but the requests that the worker "
    "knows.",
    "vllm.worker.add_message",
)
def message_changes_only_known_requests(more: int) -> list[Any]:
    """Claim this for up to three requests, each of which ran before, joins, is preempted or waits.

    If `more` is 1, make the guard's claim instead, which must fail: it expects one request more to
    be sent.
    """
    numbers = Numbers()
    settings = Settings(numbers)

    def code(run: SymbolicRun) -> Any:
        def yes(what: str, number: int) -> bool:
            return run.answer(z3.Bool(f"{number} {what}"))

        requests = [
            Sequence(f"{n}", 1, 2, 2, computed=run.number(z3.Int(f"computed {n}")), blocks=(n,))
            for n in range(3)
        ]
        ran = [request for n, request in enumerate(requests) if yes("ran", n)]
        runs = [request for n, request in enumerate(requests) if yes("runs", n)]
        grown = tuple(request._replace(blocks=(*request.blocks, 9)) for request in runs)
        waits = tuple(request for request in requests if request not in runs)
        preempted = tuple(request.id for request in ran if request not in runs)
        shares = {request.id: 1 for request in runs}
        before = State(waiting=waits, running=tuple(ran), told=tuple(request.id for request in ran))
        plan = Plan(grown, waits, before.pool, 1, shares, preempted)
        after = State(waiting=waits, running=grown, told=before.told)
        config = settings.config(run)
        told, seen = worker.add_message(config, before, plan, after, {"kept": 1})
        same = all(
            getattr(told, field) is getattr(after, field)
            for field in State.__struct_fields__
            if field != "told"
        )
        sent = len(seen["sent"]["computed"]) == len(runs) + more
        return same and sent and seen["kept"] == 1

    return holds_on(numbers, paths(numbers, code), z3.BoolVal)
