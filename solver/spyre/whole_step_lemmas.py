"""What a step does between the functions that other lemmas run.

`step_passes_states_on` is about any state, because the functions of the step are replaced, and the
code may not look into a state. `decode_step_leaves_others` runs a decode step with several
requests.
"""

from dataclasses import replace
from typing import Any

import z3

from ...model.spyre import blocks, scheduler
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.state import Decision, State
from ..smt.execution import SymbolicRun, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import lemma
from ..smt.passed_on import Name, must_be, plain_id
from .surroundings import any_switches, make_request, same_pool
from .symbolic_admission import length
from .symbolic_state import any_rest

ABORTS = 3  # the most aborts within a step
MEMBERS = 3  # requests of a decode step
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

    With `more` set to 1, this is the lemma's guard, a variant that must fail: it expects one abort
    more.
    """
    revision = REVISIONS[name]

    def code(run: SymbolicRun) -> Any:
        made, called = [object()], list[Any]()
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

    With `more` set to 1, this is the lemma's guard, a variant that must fail: it expects that one
    request more decodes.
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
        with stubs(
            blocks,
            hold=lambda config, request, covered, pool: (request, pool),
            release=same_pool,
        ):
            state, found = scheduler.compute(config, revision, state, Decision("decode", decodes))
            after, _, _ = scheduler.complete(config, revision, state, found)
        left = [request for request in after.running if request is prefills]
        counts = len(found.scheduled) == len(decodes) + more
        return len(left) == 1 and after.waiting is waits and counts and after.paused == ()

    return holds_on(numbers, paths(numbers, code), z3.BoolVal)
