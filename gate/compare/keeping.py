"""Keep a difference between two targets: shrink its scenario, replay it, and write it to a file."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
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
from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from ..files.scenario_file import write_scenario
from ..judging.base import Noted
from ..judging.context import GateContext, write_differing
from ..judging.verdict import EngineRun, TargetInfo

FORMAT = "schedproof/diff@1"


class DiffFinding(msgspec.Struct, frozen=True):
    """A difference between two targets, in the smallest scenario that shows it. Times are in
    seconds.

    `shape` is the same for every scenario that shows the difference. `scenario_b` is set if B
    belongs to another system. `fields` maps each field that differs to its values on A and on B.
    `seen` counts the runs that show the difference; it is None if some runs were not continued to
    their end.
    """

    kind: str
    shape: str
    engine: str
    scale: str
    scenario: str
    step: int
    message: str
    requests: int
    fields: dict[str, dict[str, Any]]
    words: tuple[str, ...]
    scenario_b: str | None = None
    found_after: float = 0.0
    shrunk_in: float = 0.0
    seen: int | None = None


class Compared(msgspec.Struct, frozen=True):
    """How much was compared. `fields` counts, for each field, the steps in which both targets
    showed it."""

    steps: int
    fields: dict[str, int]
    events: dict[str, int]
    both_failed: int


class DiffVerdict(msgspec.Struct, frozen=True):
    """The result of a comparison. `fixed` contains the values set in every configuration."""

    a: TargetInfo
    b: TargetInfo
    system: str
    revision: str
    fixed: Mapping[str, Any]
    profile: str
    seed: int
    engines: tuple[EngineRun, ...]
    differences: tuple[DiffFinding, ...]
    compared: Compared
    exit_code: int
    baseline: str | None = None
    interrupted: bool = False
    fault: str | None = None
    format: str = FORMAT


def exit_code(differences: int, steps: int, complete: bool) -> int:
    """Return 1 if there is a difference, 3 if the comparison is empty or incomplete, else 0."""
    if differences:
        return BROKEN
    return CONFORMS if complete and steps else INCONCLUSIVE


# The steps that may be spent on each target to shrink a long scenario.
SHRINK_STEPS = 20_000


class KeptDifference(NamedTuple):
    """A difference, the smallest scenario found that shows it, and the scenario's file.

    `recent` contains the preceding steps on both targets. `earlier` is a harmless difference in an
    earlier step. `seen` is the number of runs that show the difference.
    """

    noted: Noted
    difference: Difference
    path: str
    recent: Sequence[StepPair] = ()
    earlier: Difference | None = None
    seen: int = 1
    shrunk_in: float = 0.0


def keep_differences(
    gate: GateContext, most: int, shrinks: bool = True
) -> Iterator[KeptDifference]:
    """Yield up to `most` differences, most serious first. Configurations that only one of the
    targets refuses come last. Differences are shrunk unless the gate was interrupted.

    Raise TargetBroken if a difference does not occur again in its scenario.
    """
    assert gate.base is not None
    compared = gate.base.compared
    noted = sorted(compared.differences.values(), key=_gravest_first)
    noted += _refused_configurations(gate)
    for note in noted[:most]:
        assert note.difference is not None
        seen = compared.seen[note.difference.shape] or 1
        if gate.results.broken_off or not note.engine:
            kept = KeptDifference(note, note.difference, "")
        else:
            kept = _smallest(gate, note, shrinks)
        yield write_difference(gate, kept._replace(seen=seen))


def _gravest_first(noted: Noted) -> tuple[int, tuple[int, int]]:
    assert noted.difference is not None
    return RANKS.index(noted.difference.kind), size(noted.scenario)


def _refused_configurations(gate: GateContext) -> list[Noted]:
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


def _smallest(gate: GateContext, noted: Noted, shrinks: bool) -> KeptDifference:
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
        return difference_in(pair, candidate, shape, first.step) is not None

    if shrinks:
        cut = until(scenario, first.step)
        if cut != scenario and still_differs(cut):
            scenario = cut
        scenario = shrink(scenario, still_differs, attempts)
    shown = difference_in(pair, scenario, shape, first.step)
    if shown is None:
        path = write_scenario(scenario, gate.options.out, f"flaky-{first.kind}")
        why = f"{shape} did not occur again in the same scenario ({path})"
        raise TargetBroken("step", f"{why}: one of the targets is not deterministic", "")
    number = pair.differences.index(shown)
    earlier = pair.differences[number - 1] if number else None
    recent = tuple(both for both in pair.recent if both.number < shown.step)
    smallest = noted._replace(scenario=scenario, difference=shown)
    return KeptDifference(smallest, shown, "", recent, earlier, shrunk_in=time.monotonic() - began)


def difference_in(
    pair: DifferentialTarget, scenario: Scenario, shape: str, last_step: int
) -> Difference | None:
    """Return the difference of this shape that the scenario shows in the steps up to `last_step`,
    or None."""
    try:
        replay(pair, scenario, (), last_step=last_step)
    except (ConfigRefused, InputError):
        return None
    return next((difference for difference in pair.differences if difference.shape == shape), None)


def write_difference(gate: GateContext, kept: KeptDifference) -> KeptDifference:
    named, path = write_differing(gate.options, kept.noted, kept.difference)
    return kept._replace(noted=kept.noted._replace(scenario=named), path=str(path))


def finding_of(gate: GateContext, kept: KeptDifference) -> DiffFinding:
    """Return a difference as data. If B belongs to another system, also write a scenario file for
    B."""
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
