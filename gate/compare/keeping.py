"""Keep a difference between two targets: shrink it, confirm it by a replay, and write it
to a file.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetBroken
from ...model.scenario import Request, Scenario
from ...properties.checking.difference import HANG, Difference
from ...properties.checking.differential_target import RANKS, DifferentialTarget, StepPair
from ...properties.checking.replay import replay
from ...properties.checking.translation import translated
from ...properties.search.state import size
from ...properties.shrinking.shrink import HANG_ATTEMPTS, shrink, until
from ..files.scenario_file import write_scenario
from ..judging.base import Noted
from ..judging.context import GateContext
from .verdict import DiffFinding

# Steps that shrinking a long scenario may take on each target.
SHRINK_STEPS = 20_000


class Kept(NamedTuple):
    """A difference, with the smallest scenario found that shows it, and the file of that scenario.

    `recent` holds the preceding steps on both targets, `earlier` a harmless difference before this
    one, and `seen` the number of runs that showed it.
    """

    noted: Noted
    difference: Difference
    path: str
    recent: Sequence[StepPair] = ()
    earlier: Difference | None = None
    seen: int = 1
    shrunk_in: float = 0.0


def keep_differences(gate: GateContext, most: int, shrinks: bool = True) -> Iterator[Kept]:
    """Yield up to `most` of the differences that a gate noted, the most serious first; shrink them
    unless the gate was interrupted. Raise TargetBroken if one does not show again."""
    assert gate.base is not None
    compared = gate.base.compared
    noted = [*compared.differences.values(), *_refused_configurations(gate)]
    noted.sort(key=_gravest_first)
    for note in noted[:most]:
        assert note.difference is not None
        seen = compared.seen[note.difference.shape] or 1
        if gate.results.broken_off or not note.engine:
            kept = Kept(note, note.difference, "")
        else:
            kept = _smallest(gate, note, shrinks)
        yield write_difference(gate, kept._replace(seen=seen))


def _gravest_first(noted: Noted) -> tuple[int, tuple[int, int]]:
    assert noted.difference is not None
    return RANKS.index(noted.difference.kind), size(noted.scenario)


def _refused_configurations(gate: GateContext) -> list[Noted]:
    """Return the configurations that only one target accepts, each with a single request."""
    assert gate.base is not None
    request = Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1)
    options = gate.options
    return [
        Noted(
            Scenario(
                system=options.system,
                revision=options.revision,
                config=dict(refused.config),
                requests=(request,),
            ),
            engine="",
            scale="any",
            difference=refused.difference,
        )
        for refused in gate.base.pair.coverage.refused.values()
    ]


def _smallest(gate: GateContext, noted: Noted, shrinks: bool) -> Kept:
    assert gate.base is not None
    assert noted.difference is not None
    pair, began, shape = gate.base.pair, time.monotonic(), noted.difference.shape
    first, scenario = noted.difference, noted.scenario
    attempts = min(gate.options.profile.shrink_attempts, SHRINK_STEPS // (first.step + 1))
    if first.kind == HANG:
        attempts = min(attempts, HANG_ATTEMPTS)

    def still_differs(candidate: Scenario) -> bool:
        fixed = gate.options.fixed
        if any(candidate.config.get(key, 0) != value for key, value in fixed.items()):
            return False
        return differs(pair, candidate, shape, first.step) is not None

    if shrinks:
        cut = until(scenario, first.step)
        if cut != scenario and still_differs(cut):
            scenario = cut
        scenario = shrink(scenario, still_differs, attempts)
    shown = differs(pair, scenario, shape, first.step)
    if shown is None:
        path = write_scenario(scenario, gate.options.out, f"flaky-{first.kind}")
        why = f"{shape} did not show again in the same scenario ({path})"
        raise TargetBroken("step", f"{why}: a target is not deterministic", "")
    number = pair.differences.index(shown)
    earlier = pair.differences[number - 1] if number else None
    recent = tuple(both for both in pair.recent if both.number < shown.step)
    smallest = noted._replace(scenario=scenario, difference=shown)
    return Kept(smallest, shown, "", recent, earlier, shrunk_in=time.monotonic() - began)


def differs(
    pair: DifferentialTarget, scenario: Scenario, shape: str, last_step: int
) -> Difference | None:
    """Return the difference of this shape that the scenario shows up to `last_step`. Returns None
    if there is none, or if a target refuses the scenario."""
    try:
        replay(pair, scenario, (), last_step=last_step)
    except (ConfigRefused, InputError):
        return None
    return next((difference for difference in pair.differences if difference.shape == shape), None)


def write_difference(gate: GateContext, kept: Kept) -> Kept:
    options, noted, difference = gate.options, kept.noted, kept.difference
    assert options.base is not None
    title = f"{difference.kind} between {options.spec.text} and {options.base.spec.text}"
    origin = {
        "engine": noted.engine or "hypothesis",
        "note": f"{title}: {difference.message}",
        "seed": options.seed if noted.engine != "corpus" else None,
    }
    named = replace(noted.scenario, name=title, origin=origin)
    path = write_scenario(named, options.out, f"diff-{difference.kind}")
    return kept._replace(noted=noted._replace(scenario=named), path=str(path))


def finding_of(gate: GateContext, kept: Kept) -> DiffFinding:
    """Return a difference as data, and write the file that B replays if it belongs to another
    system."""
    noted, difference = kept.noted, kept.difference
    return DiffFinding(
        kind=difference.kind,
        shape=difference.shape,
        engine=noted.engine or "hypothesis",
        scale=noted.scale,
        scenario=kept.path,
        step=difference.step,
        message=difference.message,
        requests=len(noted.scenario.requests),
        fields={field.field: {"a": field.first, "b": field.second} for field in difference.fields},
        words=difference.words,
        scenario_b=_for_second(gate, noted.scenario),
        found_after=noted.found_after,
        shrunk_in=kept.shrunk_in,
        seen=kept.seen,
    )


def _for_second(gate: GateContext, scenario: Scenario) -> str | None:
    """Write the file that B replays if it belongs to another system; return its path, or None."""
    assert gate.base is not None
    other = gate.base.pair.sides[1]
    if other.system == scenario.system:
        return None
    config = translated(
        *(scenario.config, scenario.system, scenario.revision or ""),
        *(other.system, other.revision),
    )
    own = replace(scenario, system=other.system, revision=other.revision, config=config)
    return str(write_scenario(own, gate.options.out, "diff-b"))
