"""Times of the encodings of one admission into any batch: unrolled, closed form, integers, bits.

Every question is asked of Z3 in a process of its own, with a time limit from outside; all of one
table are asked in one run. `sat`: the formula of 2.1.0, found wanting, and confirmed by the exact
check. `unsat`: that of 2.1.2, so that this is its proof for a fixed number of requests, too.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import z3

from ..gate.processes.worker_timeout import Unanswered, bounded
from ..model.spyre.peak import peak_volume
from ..solver.smt.numbers import KINDS, Kind
from ..solver.smt.obligation import decide
from ..solver.spyre.admission_sequences import (
    Setting,
    Single,
    any_batch,
    found_in,
    make_numbers,
    overrun,
    single_admission,
)
from .figure import Plan, Row

FORMULAS = {"sat": "2.1.0", "unsat": "2.1.2"}
FORMS = ("closed form", "unrolled")
START_UP = 20.0  # seconds that a process may take to import Z3, on a busy machine
# What can be unrolled, and production scale: block 64.
TABLES = (("production", FORMS[:1], (2, 4, 8, 16, 32)), ("small", FORMS, (2, 4, 8)))


def setting_of(scale: str, formula: str, requests: int) -> Setting:
    """A limit that so many requests can exceed, and that is no whole number of blocks for each."""
    if scale == "production":
        longest = {2: 32_768, 4: 32_768}.get(requests, 131_072 * 2 // requests)
        limit = 131_072 if requests > 4 else requests * longest // 2 + 13
        return Setting(formula, requests, limit=limit, max_model_len=longest)
    return Setting(formula, requests, block=16, limit=requests * 109, max_model_len=160)


def unrolled(setting: Setting, kind: Kind) -> Single:
    """One admission into any batch, every decode step written out: some step overruns the limit."""
    numbers = make_numbers(setting, kind)
    met = any_batch(numbers, setting)
    step = numbers.fresh("step", 1, setting.max_model_len)
    overruns = [
        z3.And(step == number, *overrun(numbers, setting, met, numbers.value(number)))
        for number in range(1, setting.max_model_len)
    ]
    return Single([*numbers.facts, z3.Or(overruns)], met, step)


def ask(form: str, kind: Kind, setting: Setting) -> Iterator[tuple[str, float]]:
    """The answer, a `sat` confirmed on numbers, and the seconds of encoding and deciding."""
    began = time.monotonic()
    problem = (unrolled if form == "unrolled" else single_admission)(setting, kind)
    answer, solution = decide(problem.facts)
    spent = time.monotonic() - began
    if solution is not None:
        found = found_in(problem, solution)
        assert peak_volume(found.decoding, found.newcomer, setting.block) > setting.limit
    yield answer, spent


def measured(form: str, kind: Kind, setting: Setting, expected: str, limit: float) -> float | None:
    """Seconds, or None where the limit was reached or Z3 could not tell.

    Raises:
        AssertionError: the encodings disagree.
    """
    try:
        [(answer, spent)] = bounded(limit, ask, form, kind, setting)
    except Unanswered as why:
        if "time limit" in str(why):
            return None
        raise
    if answer == "unknown" or spent > limit:
        return None
    assert answer == expected, (form, kind, setting, answer)
    return float(spent)


def table(
    scale: str,
    sizes: Sequence[int],
    forms: Sequence[str],
    limit: float,
    answers: Sequence[str] = tuple(FORMULAS),
) -> Iterator[list[Any]]:
    """A row an encoding: its name, and seconds for each expected answer and number of requests.

    None where it takes too long: with more requests than that it is not asked again.
    """
    for form, kind in product(forms, KINDS):
        seconds: list[float | None] = []
        for expected in answers:
            spent: float | None = 0.0
            for size in sizes:
                setting = setting_of(scale, FORMULAS[expected], size)
                if spent is not None:
                    spent = measured(form, kind, setting, expected, limit)
                seconds.append(spent)
        yield [f"{form}, {kind}", *seconds]


def rows(quick: bool) -> Iterator[Row]:
    """A row an encoding, answer and number of requests; the closed form in integers first."""
    limit = 5.0 if quick else 30.0
    answers = ("sat",) if quick else tuple(FORMULAS)
    for scale, forms, sizes in TABLES[: 1 if quick else None]:
        chosen = sizes[:1] if quick else sizes
        base: Sequence[float | None] = ()
        for name, *seconds in table(scale, chosen, forms, limit, answers):
            base = base or seconds
            asked = [(expected, size) for expected in answers for size in chosen]
            late: set[str] = set()
            for (expected, size), spent, ours in zip(asked, seconds, base, strict=True):
                skipped = expected in late
                if spent is None:
                    late.add(expected)
                value = limit if spent is None else spent
                yield Row(
                    what=f"{name}: {scale}, {expected}, {size} requests",
                    value=None if skipped else value,
                    unit="s",
                    at_least=spent is None and not skipped,
                    ratio=None if ours is None or skipped else value / ours,
                    ratio_at_least=spent is None and not skipped,
                    to=f"{FORMS[0]}, {KINDS[0]}",
                    note="not asked: fewer requests took too long" * skipped,
                    series=f"{name}, {scale}, {expected}",
                    at=size,
                )


PLAN = Plan(
    "encodings",
    "Z3 by encoding and batch size",
    f"one admission into any batch, Z3 {z3.get_version_string()}; sat: the formula of 2.1.0; "
    "unsat: that of 2.1.2; small: block 16, max_model_len 160, which can be unrolled",
    rows,
    axis="requests",
)
