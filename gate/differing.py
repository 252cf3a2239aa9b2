"""The engines of a comparison: the built-in scenarios, and Hypothesis at each scale, on a pair.

Every difference is shrunk, shown once more and written down before it is reported.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetBroken, TargetFault
from ..model.scenario import Request, Scenario
from ..model.systems import full_config
from ..properties.difference import HANG, Difference
from ..properties.machine import Enough, Search, search
from ..properties.pair import Both, Pair
from ..properties.replay import replay
from ..properties.rules import NEVER_CRASHES, NEVER_HANGS
from ..properties.session import Session
from ..properties.shrink import shrink
from ..properties.terms import translated
from .builtin import builtin_scenarios, longest
from .diff_verdict import DiffFinding
from .events import Notice, Progress
from .probing import PROBES, SCALES
from .profiles import PROFILES, Profile
from .scenario_file import write_scenario
from .shrinking import HANG_ATTEMPTS
from .verdict import EngineRun

# Both crash or hang alike: the run is over, and that is no difference.
BOTH_FAILED = frozenset({NEVER_CRASHES, NEVER_HANGS})
# Steps that shrinking a long scenario of the corpus may take on each target.
CORPUS_STEPS = 20_000


class DiffFound(NamedTuple):
    """A difference, written down; `recent` are the steps before it, on both."""

    finding: DiffFinding
    scenario: Scenario
    difference: Difference
    recent: Sequence[Both]
    earlier: Difference | None = None


@dataclass
class Diff:
    """One comparison: who, how hard, and what came out so far.

    Attributes:
        specs: the targets as the command line names them.
        fixed: values that every configuration has.
        found: by the shape of the difference.
    """

    pair: Pair
    specs: tuple[str, str]
    system: str
    revision: str
    fixed: Mapping[str, Any]
    profile_name: str
    seed: int
    max_differences: int
    out: Path
    report: Callable[[Notice | Progress | DiffFound], None]
    engines: list[EngineRun] = field(default_factory=list)
    found: dict[str, DiffFinding] = field(default_factory=dict)
    interrupted: bool = False
    fault: TargetFault | None = None

    @property
    def profile(self) -> Profile:
        """The budgets."""
        return PROFILES[self.profile_name]

    @property
    def enough(self) -> bool:
        """As many differences were found as were asked for."""
        return len(self.found) >= self.max_differences

    @property
    def known(self) -> frozenset[str]:
        """What ends a run without being a new difference."""
        return BOTH_FAILED | self.found.keys()


def run_diff(diff: Diff) -> None:
    """Probe both, replay the corpus, search; what came out is in `diff`.

    Ctrl-C and a target that breaks off end the engines; what was found until then is kept.

    Raises:
        KeyboardInterrupt: Ctrl-C while they are still asked what they take.
        TargetFault, ConfigRefused: one does not start, or there is no scale that both take.
    """
    scales = probe(diff)
    try:
        long_ones = replay_corpus(diff)
        for scale in scales:
            if not diff.enough:
                search_scale(diff, scale)
        keep_long_ones(diff, long_ones)
        keep_refused(diff)
    except KeyboardInterrupt:
        diff.interrupted = True
    except TargetFault as fault:
        diff.fault = fault


def probe(diff: Diff) -> list[str]:
    """The scales whose configurations both take."""
    scales = []
    refusals: dict[str, str] = {}
    for scale in SCALES:
        if scale == "short" and "small" in scales:
            continue  # as for a gate
        values = {**PROBES[diff.system][scale], **diff.fixed}
        try:
            config = full_config(diff.system, diff.revision, values)
            Session(diff.pair, diff.system, diff.revision, config, ())
        except (ConfigRefused, InputError) as refusal:
            refusals[scale] = str(refusal)
        else:
            scales.append(scale)
    diff.pair.refused.clear()  # a scale that one of them does not take is left out
    if not scales:
        tried = " and ".join(f"{scale} ({words})" for scale, words in refusals.items())
        raise ConfigRefused(f"there is no scale that both targets take: {tried}")
    for scale, words in refusals.items():
        diff.report(Notice(f"scale {scale} left out: {words}"))
    first, second = (side.started for side in diff.pair.sides)
    assert first is not None
    assert second is not None
    diff.report(
        Notice(
            f"A: {first.name} {first.version}; B: {second.name} {second.version}; "
            f"scales {', '.join(scales)}"
        )
    )
    return scales


def replay_corpus(diff: Diff) -> dict[str, tuple[Scenario, int]]:
    """The built-in scenarios, each to its end or to the first difference.

    They are long, so that the search is asked first for a smaller scenario of the same difference:
    here is the first of each shape, with the steps that it takes.
    """
    long_ones: dict[str, tuple[Scenario, int]] = {}
    began = time.monotonic()
    totals: Counter[str] = Counter()
    complete = False
    try:
        for name, scenario in builtin_scenarios(diff.system).items():
            if longest(scenario) > diff.profile.corpus_steps:
                left_out = f"corpus: {name} left out of profile {diff.profile_name}"
                diff.report(Notice(left_out))
                continue
            diff.report(Progress("corpus", totals["runs"], 0, totals["steps"]))
            meant = replace(
                scenario,
                revision=diff.revision,
                config={**scenario.config, **diff.fixed},
                expect=None,
            )
            try:
                outcome = replay(diff.pair, meant, ())
            except (ConfigRefused, InputError):  # an option that this revision does not have
                totals["refused"] += 1
                continue
            totals["runs"] += 1
            totals["steps"] += outcome.steps
            totals["rejected"] += len(outcome.session.rejected)
            if outcome.broken and outcome.broken[0].rule not in BOTH_FAILED:
                long_ones.setdefault(outcome.broken[0].rule, (meant, outcome.steps))
        complete = True
    finally:
        book(diff, "corpus", "production", totals, began, complete)
    return long_ones


def keep_long_ones(diff: Diff, long_ones: Mapping[str, tuple[Scenario, int]]) -> None:
    """What only the corpus shows."""
    diff.pair.tolerated = frozenset()
    for shape, (scenario, steps) in long_ones.items():
        if not diff.enough and shape not in diff.found:
            attempts = CORPUS_STEPS // (steps + 1)
            keep_smallest(diff, "corpus", "production", scenario, 0.0, attempts)


def search_scale(diff: Diff, scale: str) -> None:
    """Hypothesis at one scale, again and again while it finds differences of new shapes."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    examples, seed = diff.profile.examples, diff.seed
    complete = False
    try:
        while examples > 0 and not diff.enough:
            diff.pair.tolerated = frozenset(diff.found)
            hunt = Search(diff.pair, diff.system, diff.revision, (), scale, diff.known)
            hunt.fixed = diff.fixed
            hunt.watch = lambda h=hunt: _watch(diff, scale, h)
            try:
                broken = search(hunt, examples, seed, diff.profile.shrink_runs)
                if not broken and hunt.runs < examples:
                    why = f"the search ended after {hunt.runs} of {examples} runs"
                    raise TargetBroken("step", f"{why}: a target is not deterministic", "")
            finally:
                totals["runs"] += hunt.runs
                totals["steps"] += hunt.steps
                totals["refused"] += hunt.refused.total()
                totals["rejected"] += hunt.rejected
            if hunt.failure is not None:
                attempts = diff.profile.shrink_attempts
                smallest, _ = hunt.failure
                keep_smallest(
                    *(diff, "hypothesis", scale, smallest, hunt.found_after, attempts),
                    hunt.shrink_seconds,
                )
            if any(one.kind == HANG for one in diff.found.values()):
                diff.report(Notice(f"hypothesis, {scale}: a target that hangs is searched no more"))
                return
            examples -= hunt.runs_to_failure if broken else examples
            seed += 1
        complete = True
    finally:
        book(diff, "hypothesis", scale, totals, began, complete)


def _watch(diff: Diff, scale: str, hunt: Search) -> None:
    if hunt.failure is not None and hunt.failure[1][0].rule.startswith(f"{HANG}: "):
        raise Enough
    diff.report(Progress(f"hypothesis, {scale}", hunt.runs, diff.profile.examples, hunt.steps))


def keep_smallest(
    diff: Diff,
    engine: str,
    scale: str,
    scenario: Scenario,
    found_after: float,
    attempts: int,
    shrunk_in: float = 0.0,
) -> None:
    """Shrink a scenario that differs, show it once more, and keep it.

    Raises:
        TargetBroken: it does not differ again; the scenario is written down all the same.
    """
    began = time.monotonic()
    first = differs(diff.pair, scenario, None)
    if first is None:
        path = write_scenario(scenario, diff.out, "flaky-difference")
        why = f"a difference did not show again in the same scenario ({path})"
        raise TargetBroken("step", f"{why}: a target is not deterministic", "")
    if first.kind == HANG:
        attempts = min(attempts, HANG_ATTEMPTS)

    def still_differs(candidate: Scenario) -> bool:
        if any(candidate.config[key] != value for key, value in diff.fixed.items()):
            return False
        again = differs(diff.pair, candidate, first.step)
        return again is not None and again.shape == first.shape

    cut = until(scenario, first.step)
    if cut != scenario and still_differs(cut):
        scenario = cut
    smallest = shrink(scenario, still_differs, min(attempts, diff.profile.shrink_attempts))
    shown = differs(diff.pair, smallest, first.step)
    if shown is None or shown.shape != first.shape:
        path = write_scenario(smallest, diff.out, f"flaky-{first.kind}")
        why = f"{first.shape} did not show again in the same scenario ({path})"
        raise TargetBroken("step", f"{why}: a target is not deterministic", "")
    seconds = shrunk_in + time.monotonic() - began
    before = tuple(diff.pair.recent)
    keep(
        *(diff, engine, scale, smallest, shown, before, found_after, seconds),
        earlier=diff.pair.earlier,
    )


def until(scenario: Scenario, step: int) -> Scenario:
    """The scenario without what would happen after a step."""
    kept = [one for one in scenario.requests if one.arrival <= step]
    patient = [
        replace(one, abort_at=None, abort_inside=False) if (one.abort_at or 0) > step else one
        for one in kept
    ]
    return replace(scenario, requests=tuple(patient))


def differs(pair: Pair, scenario: Scenario, last_step: int | None) -> Difference | None:
    """How both differ in this scenario, up to a step; None where they do not, or refuse it."""
    try:
        replay(pair, scenario, (), last_step=last_step)
    except (ConfigRefused, InputError):
        return None
    return pair.difference


def keep_refused(diff: Diff) -> None:
    """Configurations that one target takes and the other refuses: one request is enough."""
    for shape, refused in diff.pair.refused.items():
        if diff.enough:
            return
        if shape not in diff.found:
            one = Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1)
            scenario = Scenario(
                system=diff.system,
                revision=diff.revision,
                config=dict(refused.config),
                requests=(one,),
            )
            keep(diff, "hypothesis", "any", scenario, refused.difference, ())


def keep(
    diff: Diff,
    engine: str,
    scale: str,
    scenario: Scenario,
    difference: Difference,
    recent: Sequence[Both],
    found_after: float = 0.0,
    shrunk_in: float = 0.0,
    seen: int | None = None,
    earlier: Difference | None = None,
) -> None:
    """Write the scenario down, for B in its own terms where these are others, and report it."""
    first, second = diff.specs
    title = f"{difference.kind} between {first} and {second}"
    origin = {
        "engine": engine,
        "note": f"{title}: {difference.message}",
        "seed": diff.seed if engine == "hypothesis" else None,
    }
    named = replace(scenario, name=title, origin=origin)
    path = write_scenario(named, diff.out, f"diff-{difference.kind}")
    finding = DiffFinding(
        kind=difference.kind,
        shape=difference.shape,
        engine=engine,
        scale=scale,
        scenario=str(path),
        step=difference.step,
        message=difference.message,
        requests=len(scenario.requests),
        fields={one.field: {"a": one.first, "b": one.second} for one in difference.fields},
        words=difference.words,
        scenario_b=_for_second(diff, named),
        found_after=found_after,
        shrunk_in=shrunk_in,
        seen=seen,
    )
    diff.found[difference.shape] = finding
    diff.report(DiffFound(finding, named, difference, recent, earlier))


def _for_second(diff: Diff, scenario: Scenario) -> str | None:
    """The file that B replays where its terms are others."""
    other = diff.pair.sides[1]
    if other.system == scenario.system:
        return None
    config = translated(
        *(scenario.config, scenario.system, scenario.revision or ""),
        *(other.system, other.revision),
    )
    own = replace(scenario, system=other.system, revision=other.revision, config=config)
    return str(write_scenario(own, diff.out, "diff-b"))


def book(
    diff: Diff, engine: str, scale: str, totals: Counter[str], began: float, complete: bool
) -> None:
    """What an engine did."""
    diff.engines.append(
        EngineRun(
            engine,
            scale,
            totals["runs"],
            totals["steps"],
            time.monotonic() - began,
            totals["refused"],
            totals["rejected"],
            complete,
        )
    )
