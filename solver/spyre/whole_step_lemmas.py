"""What a step does between the functions that other lemmas run.

`step_passes_states_on` is about any state, because the functions of the step are replaced, and the
code may not look into a state. The other lemmas run the computation of a step with several
requests.
"""

from dataclasses import replace
from operator import is_
from typing import Any

import z3

from ...model.spyre import blocks, documented, scheduler
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.state import Decision, State
from ..smt.execution import SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import lemma
from ..smt.passed_on import Name, must_be, plain_id
from .surroundings import any_switches, make_request, same_pool
from .symbolic_admission import length
from .symbolic_state import any_rest

ABORTS = 3  # the most aborts within a step
MEMBERS = 3  # requests of a decode step
DECODING = 5  # requests whose max-tkv a decode step reports
MANY_WAIT = z3.Bool("three wait")
DECODES = {"computed": 1, "generated": 1, "max_tokens": 3, "blocks": (1,)}


@lemma(
    "A step decides about the state that it is given, computes, aborts and completes one after the "
    "other, and changes nothing in between. The model's own step and abort change nothing either.",
    "spyre.model.SpyreModel.step",
    "spyre.scheduler.step",
    "spyre.model.SpyreModel.abort",
    name="step_passes_states_on_{name}",
)
def step_passes_states_on(block: int, name: str, more: int) -> list[Any]:
    """Claim this for any state, with up to three aborts within the step.

    If `more` is 1, make the guard's claim instead, which must fail: it expects one abort more.
    """
    revision = REVISIONS[name]

    def code(run: SymbolicRun) -> Any:
        made, called = list[Any]([object()]), list[Any]()
        decision, computed, emitted, finished, shown = (object() for _ in range(5))
        config = any_switches(run, block)

        def then(what: Any, state: Any, given: Any, of: Any) -> Any:
            must_be(given, config)
            must_be(of, changed)
            must_be(state, made[-1])
            called.append(what)
            made.append(object())
            return made[-1]

        def decide(given: Any, of: Any, state: Any) -> Any:
            return then("decide", state, given, of), decision

        def compute(given: Any, of: Any, state: Any, decided: Any) -> Any:
            must_be(decided, decision)
            return then("compute", state, given, of), computed

        def abort(given: Any, of: Any, state: Any, gone: Any, *, inside: bool = False) -> Any:
            return then((plain_id(gone), inside), state, given, of)

        def complete(given: Any, of: Any, state: Any, found: Any) -> Any:
            must_be(found, computed)
            return then("complete", state, given, of), emitted, finished

        def observe(given: Any, of: Any, state: Any, *others: Any) -> Any:
            must_be(state, made[-1])
            for other, expected in zip(
                others, (decision, computed, emitted, finished), strict=True
            ):
                must_be(other, expected)
            return shown

        changed: Any = replace(revision, decide=decide)
        model = SpyreModel(config, changed)
        aborts = tuple(Name(str(n)) for n in range(ABORTS) if run.answer(z3.Bool(f"aborts {n}")))
        with stubs(scheduler, compute=compute, abort=abort, complete=complete, observe=observe):
            after, seen = model.step(made[0], aborts)
            right = after is made[-1] and seen is shown
            right = right and model.abort(after, Name("gone")) is made[-1]
        within = [(plain_id(gone), True) for gone in aborts]
        expected = ["decide", "compute", *within, "complete", ("gone", False)]
        return right and called == expected + ["abort"] * more

    numbers = Numbers()
    return holds_on(numbers, paths(numbers, code), z3.BoolVal)


@lemma(
    "A decode step leaves a request in its prefill, and those that wait, as they were, whichever "
    "of three requests end.",
    "spyre.forward.compute_decode",
    "spyre.scheduler.complete",
    name="decode_step_leaves_others_{name}",
)
def decode_step_leaves_others(block: int, name: str, more: int) -> list[Any]:
    """Claim this for up to three requests that decode, and up to two that wait.

    If `more` is 1, make the guard's claim instead, which must fail: it expects that one request
    more decodes.
    """
    numbers, revision = Numbers(), REVISIONS[name]
    prompt, computed = length(numbers, "prompt"), length(numbers, "computed")
    numbers.facts.append(computed < prompt)

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block)
        decodes = tuple(
            make_request(
                run,
                str(n),
                computed=1,
                generated=1,
                max_tokens=3,
                blocks=(1,),
                output_len=z3.Int(f"ends {n}"),
            )
            for n in range(MEMBERS)
            if run.answer(z3.Bool(f"{n} decodes"))
        )
        prefills = make_request(run, "prefills", prompt=prompt, computed=computed)
        waits = tuple(
            make_request(run, f"waits {n}") for n in range(2) if run.answer(z3.Bool(f"{n} waits"))
        )
        first = run.answer(z3.Bool("prefills first"))
        running = (prefills, *decodes) if first else (*decodes, prefills)
        state = State(waits, running, **any_rest(run))
        with stubs(blocks, hold=_keep_blocks, release=same_pool):
            state, found = scheduler.compute(config, revision, state, Decision("decode", decodes))
            after, _, _ = scheduler.complete(config, revision, state, found)
        left = [request for request in after.running if request is prefills]
        counts = len(found.scheduled) == len(decodes) + more
        return len(left) == 1 and after.waiting is waits and counts and after.paused == ()

    return holds_on(numbers, paths(numbers, code), z3.BoolVal)


@lemma(
    "A decode step reports, and remembers, the max-tkv of all its requests, up to five.",
    "spyre.forward.compute_decode",
    name="decode_step_reports_max_tkv_{name}",
)
def decode_step_reports_max_tkv(block: int, name: str, more: int) -> list[Any]:
    """Claim this for up to five requests. If `more` is 1, make the guard's claim instead, which
    must fail: it expects each request to be a token longer."""
    numbers, revision = Numbers(), REVISIONS[name]
    computed = [length(numbers, f"computed {n}") for n in range(DECODING)]

    def code(run: SymbolicRun) -> Any:
        asked = list[Any]()
        tkv: Any = run.number(z3.Int("max tkv"))

        def max_tkv(lengths: Any, size: int) -> Any:
            asked.append([bare(each) for each in lengths])
            return tkv

        there = [n for n in range(DECODING) if run.answer(z3.Bool(f"{n} decodes"))]
        decodes = tuple(make_request(run, str(n), computed=computed[n], blocks=(1,)) for n in there)
        state = State(running=decodes, **any_rest(run))
        config = any_switches(run, block)
        with (
            stubs(blocks, hold=_keep_blocks),
            stubs(documented, max_tkv=max_tkv, left_pad_blocks=lambda lengths, _: [0] * len(there)),
        ):
            after, found = scheduler.compute(config, revision, state, Decision("decode", decodes))
        same = found.tkv is tkv and after.tkv is tkv and after.runner_tkv is tkv
        return same, [computed[n] for n in there], asked

    def reports(result: Any) -> Any:
        same, lengths, asked = result
        if not same or len(asked) != 1 or len(asked[0]) != len(lengths):
            return z3.BoolVal(False)
        return z3.And(
            [own == before + 1 + more for own, before in zip(asked[0], lengths, strict=True)]
        )

    return holds_on(numbers, paths(numbers, code, quick=True), reports)


def _keep_blocks(config: Any, request: Any, covered: Any, pool: Any) -> Any:
    return request, pool


@lemma(
    "A chunk is the same beside others as alone, and leaves them as they were: up to two that "
    "decode, and none or three that wait.",
    "spyre.forward.compute_chunk",
    name="chunk_ignores_others_{name}",
)
def chunk_ignores_others(block: int, name: str, more: int) -> list[Any]:
    """Claim this for a first or a later chunk. If `more` is 1, make the guard's claim instead,
    which must fail: alone, the request has computed one token more."""
    numbers, revision = Numbers(), replace(REVISIONS[name], tkv_after_chunk=lambda *_: 1)
    prompt, computed = length(numbers, "prompt"), length(numbers, "computed", 0)
    numbers.facts.append(computed + more < prompt)

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block)
        starts = run.answer(computed == 0)
        waits = tuple(make_request(run, f"waits {n}") for n in range(run.answer(MANY_WAIT) and 3))
        beside = tuple(
            make_request(run, f"decodes {n}", computed=1)
            for n in range(2)
            if run.answer(z3.Bool(f"{n} decodes"))
        )

        def chunk_of(extra: int, behind: Any, others: Any) -> Any:
            done = 0 if starts else computed + extra
            request = make_request(run, "0", prompt=prompt, computed=done)
            state = State(
                waiting=(request, *behind) if starts else behind,
                running=others if starts else (request, *others),
                **rest,
            )
            after, found = scheduler.compute(
                config, revision, state, Decision("prefill", (request,))
            )
            own, *running = after.running
            left = len(running) == len(others) and all(map(is_, running, others))
            left = left and len(after.waiting) == len(behind)
            left = left and all(map(is_, after.waiting, behind))
            numbers = found.scheduled["0"], found.left_pad_blocks["0"], own.computed
            return left, *map(bare, numbers)

        rest = any_rest(run)
        with (
            stubs(
                blocks, hold=_keep_blocks, admit=lambda config, state, member: (member, state.pool)
            ),
            stubs(documented, written=lambda *_: []),
        ):
            return chunk_of(0, waits, beside), chunk_of(more, (), ())

    def same(result: Any) -> Any:
        (left, *chunk), (_, *alone) = result
        pairs = zip(chunk, alone, strict=True)
        return z3.And(z3.BoolVal(left), *(member == other for member, other in pairs))

    return holds_on(numbers, paths(numbers, code, quick=True), same)
