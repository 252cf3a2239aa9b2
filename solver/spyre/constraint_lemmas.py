"""Lemmas about max_model_len that run the model's code.

The code's constraint, the tkv of two members and the check on arrival agree with `length_lemmas`. A
step obeys the constraint. If max_model_len is whole blocks, the tkv that a step reports stays
within it.
"""

import operator
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from operator import is_
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_1_2, release_2_5_2, scheduler
from ...model.spyre.forward import Forward
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Decision, Sequence, State
from ..smt.execution import SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import must_be
from ..smt.terms import all_of, any_of, boolean, integer
from . import length_lemmas
from .code_lemmas import between_steps
from .step_lemmas import no_tkv_is_long
from .surroundings import (
    BLOCK,
    CHUNK_BLOCKS,
    any_constraints,
    any_switches,
    in_company,
    make_request,
    same_pool,
)
from .symbolic_admission import MANY, Joining, Lengths, blocks, length
from .symbolic_state import any_rest
from .whole_step_lemmas import decode_step_reports_max_tkv

MAX_TKV = ("spyre.documented.max_tkv",)
# The module in which a revision decides. `documented` differs from `sound` only in a check that the
# lemmas on the tkv do not run.
DECIDES = {
    "sound": "spyre.documented",
    "2.1.2": "spyre.release_2_1_2",
    "2.5.2": "spyre.release_2_5_2",
}


def obligations(block: int | None) -> list[Obligation]:
    size = block or BLOCK
    return [
        *(constraint_is_as_in_lemmas(size, members) for members in (0, 1, 2)),
        max_tkv_is_as_in_lemmas(size),
        *(replace(no_tkv_is_long(size, members), code=MAX_TKV) for members in range(1, MANY + 1)),
        door_refuses_what_lemmas_assume(size),
        step_obeys_length_constraint(size),
        *(lemma for name, module in DECIDES.items() for lemma in _keeps_tkv(size, name, module)),
    ]


def _keeps_tkv(block: int, name: str, module: str) -> Iterator[Obligation]:
    step = step_keeps_tkv_within_model_length(block, name)
    yield replace(step, code=(*step.code, f"{module}.tkv_after_chunk"))
    decision = decision_keeps_tkv(block, name)
    yield replace(decision, code=(*decision.code, f"{module}.decide"))
    yield decode_step_reports_max_tkv(block, name)
    yield from between_steps(block, name)


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
    """Claim that the code's constraint is that of the lemmas. If `more` is 1, make the guard's
    claim instead, which must fail: its max_model_len is one token larger than the code's."""
    numbers = Numbers()
    joined, longest = Joined.make(numbers, members), length(numbers, "longest")
    current = length(numbers, "current", 0)

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, max_model_len=run.number(longest))
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


@lemma(
    "The check on arrival accepts exactly the requests that fit in the model's length, the limit "
    "and the pool, if it is bounded (every revision).",
    "spyre.model.SpyreModel.refusal",
)
def door_refuses_what_lemmas_assume(block: int, more: int) -> list[Any]:
    numbers = Numbers()
    prompt, tokens = length(numbers, "prompt"), length(numbers, "tokens")
    longest, limit = (length(numbers, name) for name in ("longest", "limit"))
    pool, bounded = z3.Int("num_blocks"), boolean("pool is bounded")
    numbers.facts.append(pool >= 1)

    def code(run: SymbolicRun) -> Any:
        limits = {"max_model_len": run.number(longest), "max_batch_tkv": run.number(limit)}
        config = any_switches(run, block, **limits)
        request: Any = SimpleNamespace(prompt_len=run.number(prompt), max_tokens=run.number(tokens))
        models = [SpyreModel(config, revision) for revision in REVISIONS.values()]
        return [model.refusal(request) is None for model in models]

    computed = prompt + tokens - 1
    held = blocks(numbers, Lengths(block, None), computed)
    passes = z3.And(
        computed + more <= longest, computed <= limit, z3.Or(z3.Not(bounded), held <= pool)
    )

    def accepts(answers: list[bool]) -> Any:
        return z3.And([passes == let_in for let_in in answers])

    return holds_on(numbers, paths(numbers, code), accepts)


@lemma(
    "A last chunk that breaks the constraint never runs while one or two other requests decode.",
    "spyre.documented.decide",
    "spyre.documented.satisfies_last_chunk",
)
def step_obeys_length_constraint(block: int, unasked: int) -> list[Any]:
    """Claim that a step with one or two decoding requests asks the constraint about all of them, at
    their tkv, and obeys its answer. The other checks may give any answer. Another request may wait.

    If `unasked` is 1, make the guard's claim instead, which must fail: it claims the same of chunks
    other than the last.
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


@lemma(
    "If max_model_len is whole blocks, a step reports and remembers no tkv beyond it, whatever it "
    "decides; that of a decode step is the max-tkv of its requests, at most two (revision {name}).",
    "spyre.model.SpyreModel.step",
    "spyre.scheduler.step",
    "spyre.forward.compute_chunk",
    "spyre.forward.compute_decode",
    name="step_keeps_tkv_within_model_length_{name}",
)
def step_keeps_tkv_within_model_length(block: int, name: str, more: int) -> list[Any]:
    """Claim that a step reports and remembers no tkv beyond max_model_len. One request waits or
    prefills, and up to two others decode or are paused; one of the two may be aborted within the
    step. The check on arrival has accepted all three. The remembered tkv may be any number within
    max_model_len.

    If `more` is 1, make the guard's claim instead, which must fail: max_model_len is one token more
    than whole blocks.
    """
    numbers, revision = Numbers(), REVISIONS[name]
    longest = length(numbers, "blocks") * block + more
    joining, *others = (Accepted.make(numbers, longest, decodes=n > 0) for n in range(3))
    done, starts = length(numbers, "done", 0), boolean("starts")
    numbers.facts += [done * block < joining.prompt, z3.Or(starts, done >= 1)]
    for remembered in ("tkv before", "runner_tkv before"):
        numbers.facts += [integer(remembered) >= 0, integer(remembered) <= longest]

    @cache
    def largest_tkv(*lengths: Any) -> Any:
        """Return any number that the lemmas `tkv_is_no_larger_than_needed_N` allow."""
        tkv = numbers.fresh("tkv", 0)
        fits = z3.And([has <= longest - more for has in lengths])
        numbers.define([z3.Implies(fits, tkv <= longest - more)])
        return tkv

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block, max_model_len=run.number(longest))
        # It is enough to give a block to one request. The other one takes its first block.
        beside = others[0].decoding(run, "0", (1,)), others[1].decoding(run, "1", ())
        waits, tokens, observed = run.answer(starts), run.number(done * block), list[Any]()
        tkvs = list[tuple[list[Any], Any]]()
        new = joining.of(run, "new", computed=0 if waits else tokens)
        state = in_company(run, revision, new, starts=waits, beside=beside)

        def decide(given: Any, _: Any, state: State) -> Any:
            must_be(given, config)
            chosen = (new,) if run.answer(boolean("chooses")) else ()
            if run.answer(boolean("idles")):
                return state, Decision("idle", chosen)
            if chosen:
                return state, Decision("prefill", chosen)
            return state, documented.decode_or_idle(state)

        def admit(given: Any, state: State, newcomer: Sequence) -> Any:
            must_be(given, config)
            return newcomer._replace(computed=tokens, prefix_hit=tokens), state.pool

        def hold(given: Any, holder: Sequence, _: Any, pool: Any) -> Any:
            must_be(given, config)
            return holder._replace(blocks=(1,)), pool

        def max_tkv(given: list[Any], size: Any) -> Any:
            must_be(size, block)
            if not given:
                return 0
            lengths = [*map(bare, given)]
            tkvs.append((lengths, largest_tkv(*lengths)))
            return run.number(tkvs[-1][1])

        with (
            on_symbols(documented, release_2_1_2, release_2_5_2),
            stubs(pool_of, admit=admit, hold=hold, release=same_pool),
            stubs(documented, written=lambda *_: [], left_pad_blocks=lambda given, _: given),
            stubs(documented, max_tkv=max_tkv),
            stubs(scheduler, observe=lambda *given: observed.append(given)),
        ):
            inside = ("1",) if run.answer(boolean("aborts beside")) else ()
            deciding = replace(revision, decide=decide)
            after, _ = SpyreModel(config, deciding).step(state, inside)
        [(*_, computed, _, _)] = observed
        reported = [computed.tkv, after.tkv, after.runner_tkv]
        return [*computed.scheduled], [bare(tkv) for tkv in reported], tkvs

    def within(result: Any) -> Any:
        ran, reported, tkvs = result
        claims = [tkv <= longest for tkv in reported] + [tkv >= 0 for tkv in reported]
        if ran and "new" not in ran:
            lengths = [others[int(number)].computed + 1 for number in ran]
            own = [
                all_of(reported[0] == tkv, *map(operator.eq, given, lengths))
                for given, tkv in tkvs
                if len(given) == len(lengths)
            ]
            claims.append(any_of(own))
        return z3.And(claims)

    return holds_on(numbers, paths(numbers, code, quick=True), within)


@lemma(
    "A decision remembers no other tkv, and a step shows the tkv that it reports (revision "
    "{name}).",
    "spyre.scheduler.observe",
    name="decision_keeps_tkv_{name}",
)
def decision_keeps_tkv(block: int, name: str, more: int) -> list[Any]:
    """Claim that a decision leaves the remembered tkv as it was, and that the step shows the tkv
    that it reports. A request waits or prefills beside up to two others, and the checks may give
    any answer."""
    numbers, revision = Numbers(), REVISIONS[name]

    def code(run: SymbolicRun) -> Any:
        config = any_switches(run, block)
        starts = run.answer(boolean("starts"))
        new = make_request(run, "new", prompt=z3.Int("prompt"), computed=0 if starts else 1)
        state = in_company(run, revision, new, starts=starts)
        with (
            on_symbols(documented),
            stubs(pool_of, prefix_hit=lambda *_: SymbolicLength(run.number(z3.Int("hit")))),
            any_constraints(run, revision) as constrained,
        ):
            after, decision = revision.decide(config, constrained, state)
        some = {"1": 1} if run.answer(boolean("another request ran or left")) else {}
        computed = Forward(some, some, {}, run.number(z3.Int("tkv")))
        seen = scheduler.observe(config, revision, after, decision, computed, some, cast(Any, some))
        kept = [
            bare(after.tkv) == bare(state.tkv),
            bare(after.runner_tkv) == bare(state.runner_tkv),
        ]
        return z3.And(*kept, bare(seen["tkv"] or 0) == bare(computed.tkv) + more)

    return holds_on(numbers, paths(numbers, code, quick=True), lambda claim: claim)


class Accepted(NamedTuple):
    """A request in symbols that the check on arrival has accepted, with the number of tokens that
    it has generated if it decodes."""

    prompt: Any
    tokens: Any
    ends: Any
    generated: Any

    @classmethod
    def make(cls, numbers: Numbers, longest: Any, *, decodes: bool) -> "Accepted":
        prompt, tokens, ends = (length(numbers, name) for name in ("prompt", "tokens", "ends"))
        made = cls(prompt, tokens, ends, length(numbers, "generated", int(decodes)))
        numbers.facts += [made.prompt + made.tokens - 1 <= longest, made.ends <= made.tokens]
        numbers.facts.append(made.generated < made.ends)
        return made

    @property
    def computed(self) -> Any:
        return self.prompt + self.generated - 1

    def of(self, run: SymbolicRun, name: str, **fields: Any) -> Sequence:
        lengths = {"prompt": self.prompt, "max_tokens": self.tokens, "output_len": self.ends}
        return make_request(run, name, **lengths, **fields)

    def decoding(self, run: SymbolicRun, name: str, held: tuple[int, ...]) -> Sequence:
        return self.of(run, name, computed=self.computed, generated=self.generated, blocks=held)


def _tkv_of(
    run: SymbolicRun, tkv: Any, members: tuple[Sequence, ...], lengths: Any, block: int
) -> Any:
    """Return `tkv` for the lengths of these members, and an arbitrary number for other lengths."""
    same = [
        bare(own) is bare(member.computed) for own, member in zip(lengths, members, strict=False)
    ]
    whole = len(lengths) == len(members) and all(same)
    return run.number(tkv if whole else z3.Int("tkv of others"))
