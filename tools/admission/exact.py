"""How good can an admission rule be, and how much capacity do the formulas of releases waste?

Writes five tables to `docs/explanation/exact-admission.md`. This takes ten minutes on one core. The
table `releases` runs real releases:

    make tool NAME=admission.exact OPTIONS=--write
    make tool NAME=admission.exact OPTIONS="--only hindsight"
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from schedproof.gate.processes.work_process import Unanswered, run_in_process
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.observation import Step
from schedproof.model.scenario import Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.spyre.predicates.volume import volume
from schedproof.solver.spyre.admission_sequences import Setting, to_scenario
from schedproof.solver.spyre.worst_case import Known, least_slack, needed, worst
from schedproof.spec.catalogue import load as load_rules
from schedproof.spec.catalogue import select

from ..pages import DOCS, make, rows
from . import formulas, hindsight
from .loads import PRODUCTION, Load, all_loads

PAGE, TOOL = DOCS / "explanation" / "exact-admission.md", "tools/admission/exact.py"
EXAMPLE = "examples/exact_admission.py:ExactAdmission"
PUBLISHED = {
    "0.8.0": "vllm-spyre 0.7.0 to 0.8.0",
    "1.10.0": "vllm-spyre 1.3.0 to 1.10.0",
    "2.0.1": "sendnn-inference 2.0.0, 2.0.1",
    "2.1.0": "sendnn-inference 2.1.0",
    "2.1.2": "sendnn-inference 2.1.1 and later",
    "document_own_tkv": "the document, a request's own tkv",
    "document_realigned": "the document, after realignment",
    "document_max_tkv": "the document, the batch's max-tkv",
    "document_figure": "the document's figure",
}
OURS = {"common_base": "`common_base`", "rounded": "`rounded`", "exact": "`exact`"}
SOUND = ("2.1.2", "common_base", "rounded", "exact")
LOADS = ("chat", "fit 16", "fit 32")
WASTE_SECONDS = 40.0
INSTANCES = 200


def slack() -> Iterator[str]:
    """Yield the rows of a Markdown table of the slack that each formula needs.

    Slack is the number of tokens by which the limit must be lowered so that no run exceeds the
    original limit.
    """
    found = [("formula", "slack that a run needs", "slack proven to be enough")]
    for formula, name in {**PUBLISHED, "common_base": OURS["common_base"]}.items():
        proven = least_slack(formula, PRODUCTION.max_model_len)
        settings = [Setting(formula, 2), _short(formula, 3)]
        settings += [Setting(formula, 4)] if proven is None else []
        runs = map(replayed, settings)
        most = max((tokens for tokens in runs if tokens is not None), default=0)
        limits = "none" if proven is None else f"{proven:,}"
        found.append((name, f"{most:,}", limits))
    yield from rows(*found)


def _short(formula: str, requests: int) -> Setting:
    """Return a setting with short requests, for which Z3 answers sooner. The requests are still
    long enough to show a slack of two blocks."""
    return Setting(formula, requests, max_model_len=1024)


def replayed(setting: Setting) -> int | None:
    """Return the smallest slack that keeps the run found by Z3 within the limit.

    Return None if Z3 finds no run, or if a replay does not confirm the slack. In the replay, the
    run must stay within the limit with that slack, and exceed it with one token fewer.
    """
    found = needed(setting)
    if found is None:
        return None
    limited = replace(setting, limit=found.limit)
    scenario = to_scenario(limited, list(found.arrivals), "sound")
    rule = select(load_rules("spyre"), ["SPY-R07"])
    less, just = (
        bool(replay(ModelTarget(f"{setting.formula}+{tokens}"), scenario, rule).broken)
        for tokens in (found.tokens - 1, found.tokens)
    )
    return found.tokens if less and not just else None


def waste() -> Iterator[str]:
    """Yield the rows of a Markdown table of the refusals that leave most of the limit unused."""
    found = [
        ("admission", "worst refusal found leaves unused", "proven: no refusal leaves more than")
    ]
    settings = {name: Setting(name, 5) for name in (*PUBLISHED, *OURS)}
    titles = {**PUBLISHED, **OURS}
    settings["release"] = Setting("2.1.2", 5, revision="2.1.2")
    titles["release"] = "sendnn-inference 2.1.1, 2.1.2, with the tkv that they remember"
    for name, setting in settings.items():
        known: Known | None = None
        try:
            for so_far in run_in_process(WASTE_SECONDS, worst, setting, "waste"):
                known = so_far
        except Unanswered:
            pass  # the time is up; the row shows the result so far
        found.append((titles[name], *_unused(setting, known)))
    yield from rows(*found)


def _unused(setting: Setting, known: Known | None) -> tuple[str, str]:
    """Return two cells about the worst refusal: the worst one found, and the proven bound."""
    if known is None or (not known.arrivals and not known.exact):
        return "none found", f"{setting.limit if known is None else known.at_most:,}"
    if not known.arrivals:
        return "no safe request is refused", "proven"
    return f"{known.reached:,}", "the same" if known.exact else f"{known.at_most:,}"


def chosen_loads() -> list[Load]:
    """Return the three loads of the tables. All of their outputs reach max_tokens."""
    return [load for load in all_loads(0, quick=False) if load.name in LOADS and not load.early_eos]


def loads() -> Iterator[str]:
    """Yield a table of how many steps the model takes under each check, relative to the exact
    check."""
    chosen = chosen_loads()
    least = [formulas.run(PRODUCTION, "exact", load).steps for load in chosen]
    found = [("admission", *(load.name for load in chosen))]
    found.append(("`exact`, steps", *(f"{steps:,}" for steps in least)))
    for name, words in {**PUBLISHED, **OURS}.items():
        ratios = []
        for load, steps in zip(chosen, least, strict=True):
            measured = formulas.run(PRODUCTION, name, load)
            ratios.append(f"{measured.steps / steps:.3f}{' !' if measured.beyond else ''}")
        found.append((words, *ratios))
    yield from rows(*found)


class Ratios(NamedTuple):
    """The cost of a check relative to the best schedule: the mean and the worst ratio over all
    instances."""

    mean: float
    worst: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> "Ratios":
        """Compute the ratios from pairs (cost of the check, cost of the best schedule)."""
        ratios = [cost / best for cost, best in pairs]
        return cls(sum(ratios) / len(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.worst:.2f})"


def in_hindsight() -> Iterator[str]:
    """Yield a table that compares each check with the best schedule, on small loads."""
    found: list[Sequence[str]] = [
        (
            *("requests", "check", "steps, relative to the best in the same order", "in any order"),
            "mean wait until the end, relative to the best in any order",
        )
    ]
    for count in (3, 4, 5, 6):
        chance = random.Random(f"hindsight {count}")
        instances = [hindsight.drawn(count, chance) for _ in range(INSTANCES)]
        kept = [hindsight.best(instance, "steps", in_order=True) for instance in instances]
        free = [hindsight.best(instance, "steps", in_order=False) for instance in instances]
        waits = [hindsight.best(instance, "waits", in_order=False) for instance in instances]
        for name in SOUND:
            costs = [hindsight.admitted(instance, name) for instance in instances]
            ratios = (
                Ratios.of([(cost.steps, best) for cost, best in zip(costs, kept, strict=True)]),
                Ratios.of([(cost.steps, best) for cost, best in zip(costs, free, strict=True)]),
                Ratios.of([(cost.waits, best) for cost, best in zip(costs, waits, strict=True)]),
            )
            found.append((str(count), name, *map(str, ratios)))
    yield from rows(*found)


def releases() -> Iterator[str]:
    """Yield a table of real releases, each with its own scheduler class and with the one in
    `examples/`."""
    found = [("release", "load", "steps", "with the exact check", "saved", "largest batch x tkv")]
    runs: list[tuple[str, str, dict[str, Any]]] = [
        ("2.1.2", "2.1.2", {}),
        ("2.6.3", "2.6.3, pausing off", {"pausing": False}),
        ("2.6.3", "2.6.3, pausing on", {}),
    ]
    for version, title, config in runs:
        for load in chosen_loads():
            release = f"sendnn-inference=={version}"
            own, _ = _driven(release, load, config)
            exact, largest = _driven(f"{release}:{EXAMPLE}", load, {**config, "pausing": False})
            saved = f"{1 - exact / own:.1%}"
            found.append((title, load.name, f"{own:,}", f"{exact:,}", saved, f"{largest:,}"))
    yield from rows(*found)


def _driven(target: str, load: Load, config: dict[str, Any]) -> tuple[int, int]:
    """Return the number of steps until all requests have finished, and the largest batch x tkv."""
    largest = 0

    def watch(_: int, step: Step) -> None:
        nonlocal largest
        largest = max(largest, volume(step))

    spec = parse_target(target)
    scenario = Scenario(
        system="spyre",
        revision=spec.default_revision() or "documented",
        config=config,
        requests=load.requests,
    )
    with opened(spec) as open_target:
        outcome = replay(open_target.target, scenario, (), watch)
    assert outcome.finished, (target, load.name)
    return outcome.steps, largest


TABLES = {
    "slack": slack,
    "waste": waste,
    "loads": loads,
    "hindsight": in_hindsight,
    "releases": releases,
}

if __name__ == "__main__":
    sys.exit(make(PAGE, TOOL, TABLES, __doc__))
