"""A difference is shrunk, shown once more, written down, and only then reported."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetBroken
from ...model.scenario import Request, Scenario
from ...properties.checking.difference import HANG, Difference
from ...properties.checking.differential_target import Both, Pair
from ...properties.checking.replay import replay
from ...properties.checking.translation import translated
from ...properties.shrinking.shrink import HANG_ATTEMPTS, shrink, until
from ..files.scenario_file import write_scenario
from .context import Diff, DiffFound
from .verdict import DiffFinding


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
        if any(candidate.config.get(key, 0) != value for key, value in diff.fixed.items()):
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
    other = diff.pair.sides[1]
    if other.system == scenario.system:
        return None
    config = translated(
        *(scenario.config, scenario.system, scenario.revision or ""),
        *(other.system, other.revision),
    )
    own = replace(scenario, system=other.system, revision=other.revision, config=config)
    return str(write_scenario(own, diff.out, "diff-b"))
