"""Lemmas which show that the constraint on max_model_len, the tkv of two members and the check on
arrival agree with `length_lemmas`, and that a step obeys the constraint."""

from dataclasses import replace
from functools import partial
from operator import is_
from types import SimpleNamespace
from typing import Any, NamedTuple

import z3

from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, release_2_1_2
from ...model.spyre.model import SpyreModel
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicLength, SymbolicRun, bare, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.terms import boolean
from . import length_lemmas
from .surroundings import BLOCK, CHUNK_BLOCKS, any_constraints, any_switches, make_request
from .symbolic_admission import Joining, Lengths, blocks, length
from .symbolic_state import any_rest


def obligations(block: int | None) -> list[Obligation]:
    size = block or BLOCK
    return [
        *(constraint_is_as_in_lemmas(size, members) for members in (0, 1, 2)),
        max_tkv_is_as_in_lemmas(size),
        door_refuses_what_lemmas_assume(size),
        step_obeys_length_constraint(size),
    ]


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


def door(block: int) -> Obligation:
    return door_refuses_what_lemmas_assume(block)


@lemma(
    "The check on arrival accepts exactly the requests that fit in the model's length, the limit "
    "and the pool, if it is bounded.",
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
        return SpyreModel(config, SOUND).refusal(request) is None

    computed = prompt + tokens - 1
    held = blocks(numbers, Lengths(block, None), computed)
    passes = z3.And(
        computed + more <= longest, computed <= limit, z3.Or(z3.Not(bounded), held <= pool)
    )
    return holds_on(numbers, paths(numbers, code), lambda let_in: passes == let_in)


@lemma(
    "A last chunk that breaks the constraint never runs while one or two other requests decode.",
    "spyre.documented.decide",
    "spyre.documented.satisfies_last_chunk",
)
def step_obeys_length_constraint(block: int, unasked: int) -> list[Any]:
    """Claim that a step with one or two decoding requests asks the constraint about all of them, at
    their tkv, and obeys its answer. The other checks may give any answer. Another request may wait.

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
