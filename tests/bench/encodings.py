"""Times of the encodings of one admission into any batch: unrolled, closed form, integers, bits.

Every question is asked of Z3 in a process of its own, with a time limit from outside; all of one
table are asked in one run. `sat`: the formula of 2.1.0, found wanting, and confirmed by the exact
check. `unsat`: that of 2.1.2, so that this is its proof for a fixed number of requests, too.

    python tests/bench/encodings.py [--quick] [--time-limit SECONDS]
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import z3

from schedproof.gate.bounded import Unanswered, bounded
from schedproof.model.spyre.peak import peak_volume
from schedproof.solver.numbers import KINDS, Kind
from schedproof.solver.obligation import decide
from schedproof.solver.spyre.single import Single, any_batch, found_in, overrun, single_admission
from schedproof.solver.spyre.volumetric import Setting, make_numbers

FORMULAS = {"sat": "2.1.0", "unsat": "2.1.2"}
FORMS = ("closed form", "unrolled")


def setting_of(scale: str, formula: str, requests: int) -> Setting:
    """A limit that so many requests can exceed, and that is no whole number of blocks for each."""
    if scale == "production":
        longest = {2: 32_768, 4: 32_768}.get(requests, 131_072 * 2 // requests)
        limit = 131_072 if requests > 4 else requests * longest // 2 + 13
        return Setting(formula, requests, limit=limit, max_model_len=longest)
    return Setting(formula, requests, block=16, limit=requests * 109, max_model_len=160)


def unrolled(setting: Setting, kind: Kind) -> Single:
    """The same question, with every decode step written out: some step overruns the limit."""
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
    if answer == "unknown":
        return None
    assert answer == expected, (form, kind, setting, answer)
    return float(spent)


def rows(scale: str, sizes: list[int], forms: tuple[str, ...], limit: float) -> Iterator[list[Any]]:
    """A row an encoding: its name, and seconds for each expected answer and number of requests.

    What took too long with fewer requests is not asked with more.
    """
    for form, kind in product(forms, KINDS):
        seconds: list[float | None] = []
        for expected in FORMULAS:
            spent: float | None = 0.0
            for size in sizes:
                setting = setting_of(scale, FORMULAS[expected], size)
                if spent is not None:
                    spent = measured(form, kind, setting, expected, limit)
                seconds.append(spent)
        yield [f"{form}, {kind}", *seconds]


def show(title: str, sizes: list[int], table: Iterable[list[Any]], limit: float) -> None:
    """As Markdown, row by row."""
    print(f"\n{title}\n")
    heads = [f"{expected}, {size}" for expected in FORMULAS for size in sizes]
    print(f"| encoding | {' | '.join(heads)} |")
    print("|---" * (len(heads) + 1) + "|")
    for name, *seconds in table:
        cells = [f"> {limit:g}" if one is None else f"{one:.2f}" for one in seconds]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """The tables, in seconds by answer and number of requests."""
    parser = argparse.ArgumentParser(description="Times of the encodings of one admission.")
    parser.add_argument("--quick", action="store_true", help="two and four requests only")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per question")
    options = parser.parse_args()
    print(f"Z3 {z3.get_version_string()}; seconds, {options.time_limit:g} at most")
    for scale, title, forms, sizes in (
        ("small", "Block 16, max_model_len 160: what can be unrolled.", FORMS, [2, 4, 8]),
        ("production", "Block 64, production scale.", FORMS[:1], [2, 4, 8, 16, 32]),
    ):
        chosen = sizes[:2] if options.quick else sizes
        table = rows(scale, chosen, forms, options.time_limit)
        show(title, chosen, table, options.time_limit)


if __name__ == "__main__":
    main()
