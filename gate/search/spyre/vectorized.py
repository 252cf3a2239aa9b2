"""`schedproof search --engine vectorized`: run thousands of random loads at once.

Such a search can find a counterexample, but never proves a rule. A load that breaks the rule is
replayed on the model and reported like a finding of any other engine.
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
from ...console import INCONCLUSIVE, output
from ...processes.work_process import TimeLimit
from .. import counterexample
from .setting import LENGTHS, kept_instead, read_setting

JUDGED = ("SPY-R07", "SPY-R35")
REQUESTS = 8
# Each batch has twice as many lanes as the previous one, until a batch takes about a second. The
# more steps requests may take, the fewer lanes this needs.
MIN_LANES, MAX_LANES = 256, 1024
STEPS_OF_A_NET = 1 << 25


@dataclass
class VectorizedSearch:
    """A vectorized search. It runs batches of random loads. A batch is called a net, and each of
    its loads a lane.

    `config` is the configuration of every net, or None to draw one for each net. With `published`,
    only block sizes that releases accept are drawn. `runs` and `steps` count the lanes run and the
    steps taken so far.
    """

    rule: str
    revision: str
    formula: str | None
    config: dict[str, Any] | None
    requests: int
    published: bool = False
    runs: int = 0
    steps: int = 0

    @property
    def admits_by(self) -> str:
        return f"formula {self.formula}" if self.formula else f"revision {self.revision}"

    @property
    def covered(self) -> str:
        return f"{self.runs:,} runs, {self.steps:,} steps"


def check_installed() -> None:
    if find_spec("numpy") is None:
        problem = "vectorized: NumPy is not installed; install it with: pip install numpy"
        raise InputError("--engine", problem)


def run_vectorized(
    console: Console,
    rule: Rule,
    revision: str | None,
    changes: Sequence[str],
    also: tuple[str, Target] | None,
    out: Path,
    time_limit: TimeLimit,
) -> int:
    cast = read_search(rule.id, revision, changes)
    cast.published = also is not None
    output.say(console, f"search {rule.id} by the vectorized model, {cast.admits_by}")
    began = time.monotonic()
    with console.status("") as status:
        for number in count():
            scenario = run_net(cast, number)
            spent = time.monotonic() - began
            status.update(f"vectorized: {cast.covered}")
            if scenario is not None or not time_limit.left:
                break
    if scenario is None:
        output.say(
            console,
            f"inconclusive: none of {cast.covered} breaks {rule.id}; the time limit was reached",
        )
        return INCONCLUSIVE
    output.say(console, f"found in {cast.covered}, after {spent:.1f} s")
    return counterexample.show(
        *(console, scenario, rule, cast.formula, out, also),
        found_by="what the vectorized search found",
        kept=kept_instead(rule.id),
    )


def read_search(rule: str, revision: str | None, changes: Sequence[str]) -> VectorizedSearch:
    """Return the search that the options describe. If they set a length, every batch of loads (net)
    has the same configuration."""
    from ....model.spyre.lanes import REVISIONS, read_rules

    name = "sound" if revision is None else revision
    if name not in REVISIONS:
        raise InputError(
            "--revision", f"{name!r} has no vectorized model; valid: {', '.join(REVISIONS)}"
        )
    given = [change.partition("=")[0] for change in changes]
    if "early_eos" in given:
        raise InputError(
            "--param",
            "early_eos: the vectorized model always ends some outputs early; omit early_eos",
        )
    setting = read_setting(name, list(changes))
    formula = setting.formula if "formula" in given else None
    lengths = {key: getattr(setting, field) for key, field in LENGTHS.items()}
    try:
        read_rules(name, lengths, formula)
    except InputError as error:
        raise InputError("--param", error.problem) from None
    fixed = any(key in LENGTHS for key in given)
    return VectorizedSearch(
        rule, name, formula, lengths if fixed else None, setting.requests or REQUESTS
    )


def run_net(cast: VectorizedSearch, number: int) -> Scenario | None:
    """Draw and run net `number`. Return its smallest load that breaks the rule, or None."""
    import numpy as np

    from ....model.spyre.lanes import read_rules, run
    from ....properties.spyre import workloads

    draw = np.random.default_rng(number)
    blocks = workloads.PUBLISHED_BLOCK_SIZES if cast.published else workloads.BLOCK_SIZES
    config = cast.config or workloads.draw_config(draw, blocks)
    rules = read_rules(cast.revision, config, cast.formula)
    lanes = min(MIN_LANES << min(number, 20), STEPS_OF_A_NET // rules.max_model_len, MAX_LANES)
    lanes = max(lanes, MIN_LANES)
    drawn = workloads.draw_loads(draw, rules, cast.requests, lanes)
    result = run(rules, drawn)
    cast.runs += lanes
    cast.steps += int(result.steps.sum())
    hits = workloads.caught(cast.rule, rules, result)
    if not hits.any():
        return None
    place = workloads.smallest(drawn, hits)
    scenario = workloads.scenario_of(drawn, place, cast.revision, config)
    origin = {"engine": "vectorized", "note": cast.admits_by, "seed": number}
    return replace(scenario, origin=origin)
