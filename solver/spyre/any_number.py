"""Lemmas that carry the argument of an admission to any number of requests and of admissions.

None of them names a number: a request stands for all that are like it, and how many there are of
these is itself a symbol. `walk`, `door` and `later` run the model's own code (`solver.execution`).
"""

from functools import partial
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import volumetric
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import SpyreModel
from ...model.spyre.sound import SOUND
from ..execution import Run, bare, paths
from ..numbers import Numbers, negated
from ..obligation import Obligation
from .admission_code import holds_on, request
from .symbols import length


def walk() -> Obligation:
    """For every formula."""
    return Obligation(
        "walk",
        "Where the walk stops with yes, or passes an active request, all that are active fit.",
        partial(_walk, 0),
        partial(_walk, 1),
    )


def door() -> Obligation:
    """For every formula and check."""
    return Obligation(
        "door",
        "A request that the front door lets in is within the limit alone.",
        partial(_door, 0),
        partial(_door, 1),
    )


def leaves() -> Obligation:
    """For every formula and check."""
    return Obligation(
        "leaves",
        "What fits still does with fewer requests and no larger tkv.",
        partial(_leaves, 0),
        partial(_leaves, 1),
    )


def later() -> Obligation:
    """For every formula and check."""
    return Obligation(
        "later",
        "A decode step later a request is a token longer, with a step less to run.",
        partial(_later, 0),
        partial(_later, 1),
    )


def _walk(beyond: int) -> list[Any]:
    """The walk is at a request with any term; `active` of those still to come are there at some
    later step with some tkv, the newcomer among them, and `others` are not."""
    numbers = Numbers()
    term, own, tkv, limit = (length(numbers, name) for name in ("term", "own", "tkv", "limit"))
    active, others = length(numbers, "active"), length(numbers, "others", 0)
    is_active = z3.Bool("is active")
    numbers.facts.append(z3.If(is_active, active >= 2, others >= 1))
    # `covers_newcomer`, `covers_decoding`: of a request that is there, the term covers the tkv.
    numbers.facts += [tkv <= own, z3.Implies(is_active, tkv <= term)]

    def code(run: Run) -> Any:
        asked = (run.number(one) for one in (term, active + others, own, limit))
        answer = volumetric.answer_at(*(cast(int, one) for one in asked))
        return answer if answer is None else bool(answer)

    def fits(answer: bool | None) -> Any:
        said = {True: z3.BoolVal(True), None: is_active, False: z3.BoolVal(False)}[answer]
        return z3.Implies(said, active * (tkv + beyond) <= limit)

    return holds_on(numbers, list(paths(numbers, code)), fits)


class Asked(NamedTuple):
    """A request at the front door, in symbols."""

    prompt_len: Any
    max_tokens: Any


def _door(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, tokens, longest, limit, step = (
        length(numbers, name) for name in ("prompt", "tokens", "longest", "limit", "step")
    )

    def code(run: Run) -> Any:
        config = SpyreConfig(
            max_model_len=cast(int, run.number(longest)), max_batch_tkv=cast(int, run.number(limit))
        )
        asked = cast(Any, Asked(run.number(prompt), run.number(tokens)))
        return SpyreModel(config, SOUND).refusal(asked) is None

    taken = list(paths(numbers, code))
    numbers.facts.append(step <= tokens - 1)  # decode steps: the first token needs none
    within = prompt + step + more <= limit  # alone, a request's tkv is its length
    return holds_on(numbers, taken, lambda let_in: z3.Or(z3.BoolVal(not let_in), within))


def _leaves(more: int) -> list[Any]:
    numbers = Numbers()
    limit, before, after = (length(numbers, name) for name in ("limit", "before", "after"))
    larger, smaller = length(numbers, "larger"), length(numbers, "smaller")
    numbers.facts += [after <= before + more, smaller <= larger, before * larger <= limit]
    return negated(numbers, after * smaller <= limit)


def _later(more: int) -> list[Any]:
    numbers = Numbers()
    prompt, computed, tokens, generated = (
        length(numbers, name) for name in ("prompt", "computed", "tokens", "generated")
    )
    step = length(numbers, "step")

    def code(run: Run) -> Any:
        own = {"prompt": run.number(prompt), "max_tokens": run.number(tokens)}
        now = request(0, computed=run.number(computed), generated=run.number(generated), **own)
        then = request(
            0, computed=run.number(computed + 1), generated=run.number(generated + 1), **own
        )
        return [bare(one) for one in (now.computed, now.remaining, then.computed, then.remaining)]

    def moved(result: Any) -> Any:
        has, left, has_then, left_then = result
        same_length = has + step + 1 == has_then + step + more
        return z3.And(same_length, (left >= step + 1) == (left_then >= step))

    return holds_on(numbers, list(paths(numbers, code)), moved)
