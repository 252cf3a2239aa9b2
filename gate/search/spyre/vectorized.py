"""`schedproof search --engine vectorized`: thousands of random loads at once.

It finds, and never proves. What is found is replayed on the model, and reported as elsewhere.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from ....model.errors import InputError
from ....model.scenario import Scenario
from ....model.target import Target
from ....spec.catalogue import Rule
from ...console import output
from ...console.exit_codes import INCONCLUSIVE
from .. import counterexample
from .setting import LENGTHS, kept_instead, read_setting

JUDGED = ("SPY-R07", "SPY-R35")
REQUESTS = 8
# What is easy is found by NumPy while Numba would still compile.
NETS_BY_NUMPY = 5
# Each net has twice the lanes of the one before, until it takes a second or so: the longer
# requests can take, the fewer.
MIN_LANES, MAX_BY_NUMPY, MAX_BY_NUMBA = 256, 1024, 8192
STEPS_OF_A_NET = 1 << 25


@dataclass
class Cast:
    """What the nets are cast with.

    `config` is the only configuration, None for a new one each; `published`: with blocks of the
    published size only, since no release takes another.
    """

    rule: str
    revision: str
    formula: str | None
    config: dict[str, Any] | None
    requests: int
    published: bool = False


@dataclass
class Covered:
    """What the nets have run, in lanes and their steps."""

    runs: int = 0
    steps: int = 0


def check_installed() -> None:
    """Raise InputError unless lanes can run at all."""
    if find_spec("numpy") is None:
        raise InputError(
            "--engine", "vectorized: NumPy is not installed; valid: pip install numpy numba"
        )


def run_vectorized(
    console: Console,
    rule: Rule,
    revision: str | None,
    changes: Sequence[str],
    also: tuple[str, Target] | None,
    out: Path,
    time_limit: float,
) -> int:
    """Cast nets until one catches something, or the time is over; the exit code.

    Raises:
        InputError: a revision, formula or key that lanes do not know.
    """
    cast = read_cast(rule.id, revision, changes)
    cast.published = also is not None
    output.say(console, f"search {rule.id} by the vectorized model, {admits(cast)}")
    began, covered = time.monotonic(), Covered()
    with console.status("") as status:
        for number in count():
            found = _one_net(cast, number, covered)
            spent = time.monotonic() - began
            reported = f"{covered.runs:,} runs, {covered.steps:,} steps"
            status.update(f"vectorized: {reported}")
            if found is not None or spent >= time_limit:
                break
    if found is None:
        output.say(
            console,
            f"inconclusive: none of {reported} breaks {rule.id}; the time limit was reached",
        )
        return INCONCLUSIVE
    output.say(console, f"found in {reported}, after {spent:.1f} s")
    return counterexample.show(
        *(console, found, rule, cast.formula, out, also),
        found_by="what the vectorized search found",
        kept=kept_instead(rule.id),
    )


def read_cast(rule: str, revision: str | None, changes: Sequence[str]) -> Cast:
    """What `--revision` and `--set` ask for; a length that is set fixes the configuration.

    Raises:
        InputError: a revision, formula or key that lanes do not know.
    """
    from ....model.vectorized.run import REVISIONS, read_rules

    name = revision or "sound"
    if name not in REVISIONS:
        raise InputError(
            "--revision", f"{name!r} has no vectorized model; valid: {', '.join(REVISIONS)}"
        )
    given = [change.partition("=")[0] for change in changes]
    if "early_eos" in given:
        raise InputError(
            "--set", "early_eos: the vectorized model always has some; valid: without this key"
        )
    setting = read_setting(name, list(changes))
    formula = setting.formula if "formula" in given else None
    lengths = {key: getattr(setting, field) for key, field in LENGTHS.items()}
    try:
        read_rules(name, lengths, formula)
    except InputError as error:
        raise InputError("--set", error.problem) from None
    fixed = any(key in LENGTHS for key in given)
    return Cast(rule, name, formula, lengths if fixed else None, setting.requests or REQUESTS)


def _one_net(cast: Cast, number: int, covered: Covered) -> Scenario | None:
    """The smallest load of the net of this number that breaks the rule, if one does."""
    import numpy as np

    from ....model.vectorized.compiled import compiled
    from ....model.vectorized.run import read_rules, run
    from ....properties.spyre import workloads as spyre_loads

    draw = np.random.default_rng(number)
    blocks = spyre_loads.PUBLISHED_BLOCK_SIZES if cast.published else spyre_loads.BLOCK_SIZES
    config = cast.config or spyre_loads.draw_config(draw, blocks)
    rules = read_rules(cast.revision, config, cast.formula)
    by_numba = number >= NETS_BY_NUMPY and compiled() is not None
    most = MAX_BY_NUMBA if by_numba else MAX_BY_NUMPY
    lanes = min(MIN_LANES << min(number, 20), STEPS_OF_A_NET // rules.max_model_len, most)
    lanes = max(lanes, MIN_LANES)
    asked = spyre_loads.draw_loads(draw, rules, cast.requests, lanes)
    reported = run(rules, asked, numba=by_numba)
    covered.runs += lanes
    covered.steps += int(reported.steps.sum())
    hits = spyre_loads.caught(cast.rule, rules, reported)
    if not hits.any():
        return None
    place = spyre_loads.smallest(asked, hits)
    scenario = spyre_loads.scenario_of(asked, place, cast.revision, config)
    return replace(scenario, origin={"engine": "vectorized", "note": admits(cast), "seed": number})


def admits(cast: Cast) -> str:
    """The admission rule, in words."""
    return f"formula {cast.formula}" if cast.formula else f"revision {cast.revision}"
