"""Record a baseline, and compare a target with it."""

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.replies import Started
from ...model.scenario import Scenario
from ...model.target import Target
from ...properties.checking.difference import Difference
from ...properties.checking.recording import Recorded, Recorder, RecordError
from ...properties.checking.replay import replay
from ...properties.rules.registry import NEVER_CRASHES, NEVER_HANGS
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, size
from ..console import CONFORMS, interrupts, output
from ..corpus.builtin_scenarios import builtin_scenarios, longest, seed_corpus
from ..files.scenario_file import FileError, scenario_json
from ..judging.base import Noted
from ..judging.context import BreakOff, GateContext
from ..judging.events import Progress
from ..judging.profiles import PROFILES
from ..judging.verdict import EngineRun, TargetInfo
from ..targets import probe as probing
from ..targets.probe import ProbeRequest
from ..targets.scales import scales_of
from .baseline import Header, Record, writer
from .keeping import Kept, write_difference

FAILS = frozenset({NEVER_CRASHES, NEVER_HANGS})  # recorded as the last answer of a run


class Recording(NamedTuple):
    """The target, configuration and size of a recording."""

    target: Target
    spec: str
    system: str
    revision: str
    fixed: Mapping[str, Any]
    profile_name: str
    avoid: frozenset[str] = frozenset()


def record(console: Console, recording: Recording, seed: int, file: Path) -> int:
    """Record the corpus and the scenarios that a search generates at each scale; return the exit
    code. No file is written if the target breaks the protocol."""
    started, scales, fixed, avoid = _probe(recording)
    recording = recording._replace(fixed=fixed, avoid=avoid)
    info = TargetInfo(recording.spec, started.name, started.version)
    header = Header(
        target=info,
        system=recording.system,
        revision=recording.revision,
        profile=recording.profile_name,
        seed=seed,
    )
    began = time.monotonic()
    steps = 0
    with writer(file, header) as baseline, console.status("") as status:
        for engine, scale, scenarios in (
            ("corpus", "production", _corpus(recording, builtin_scenarios(recording.system))),
            *(
                ("corpus", key, _corpus(recording, seed_corpus(recording.system, key)))
                for key in scales
            ),
            *(("hypothesis", key, _generate(recording, key, seed)) for key in scales),
        ):
            for scenario in scenarios:
                recorder = Recorder(recording.target)
                # A refusal is recorded as an answer, too.
                with contextlib.suppress(ConfigRefused, InputError):
                    steps += replay(recorder, scenario, ()).steps
                if recorder.answers:
                    baseline.record(engine, scale, scenario, recorder.answers)
                status.update(f"{engine}, {scale}: {baseline.records} scenarios, {steps} steps")
    output.say(
        console,
        f"{output.one_line(f'{started.name} {started.version}')}: {baseline.records} scenarios, "
        f"{steps} steps in {time.monotonic() - began:.1f} s; {file.stat().st_size:,} bytes in "
        f"{output.one_line(str(file))}",
    )
    command = f"schedproof diff TARGET --since {shlex.quote(str(file))}"
    output.say(console, f"compare: {output.one_line(command)}")
    return CONFORMS


def _probe(recording: Recording) -> tuple[Started, list[str], Mapping[str, Any], frozenset[str]]:
    """Return the target's name and version, the scales that it accepts, the values to fix in every
    configuration (if it accepts no scale unchanged, with refused features switched off), and the
    kinds of configuration that it refuses."""
    request = ProbeRequest(
        recording.target, recording.system, recording.revision, (), recording.fixed
    )
    scales, started, _ = probing.as_usual(request)
    if started is not None:
        base = {**scales_of(recording.system).scales[scales[0]], **recording.fixed}
        avoid = frozenset(probing.refused_kinds(request, base, recording.fixed))
        return started, scales, recording.fixed, avoid
    known = probing.probe(request)
    return known.started, known.scales, known.fixed[known.scales[0]], known.refused_kinds


def _corpus(recording: Recording, scenarios: Mapping[str, Scenario]) -> Iterator[Scenario]:
    for scenario in scenarios.values():
        if longest(scenario) <= PROFILES[recording.profile_name].corpus_steps:
            config = {**scenario.config, **recording.fixed}
            yield replace(scenario, revision=recording.revision, config=config, expect=None)


def _generate(recording: Recording, scale: str, seed: int) -> Iterator[Scenario]:
    scenarios: dict[str, Scenario] = {}

    def note(scenario: Scenario) -> None:
        scenarios.setdefault(scenario_json(scenario), scenario)

    options = SearchOptions(
        *(recording.target, recording.system, recording.revision, (), scale, FAILS),
        fixed=recording.fixed,
        avoid=recording.avoid,
    )
    search = Search(options, Hooks(watch=lambda _: interrupts.check(), ended=note))
    with interrupts.prefer_interrupt():
        run_search(search, PROFILES[recording.profile_name].examples, seed, 0)
    yield from scenarios.values()


def replay_baseline(
    gate: GateContext,
    file: Path,
    records: Iterator[tuple[int, Record, Scenario]],
) -> list[Kept]:
    """Replay every scenario of a baseline on the target, and keep the smallest run that shows each
    difference. Raise ConfigRefused if the target accepts none of the scenarios."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    smallest: dict[str, Kept] = {}
    complete = False
    try:
        for line, record, scenario in records:
            gate.report(Progress("baseline", totals["runs"], 0, totals["steps"]))
            kept = _difference(gate, file, line, record, scenario, totals)
            if kept is not None:
                shape = kept.difference.shape
                totals[shape] += 1
                before = smallest.get(shape)
                if before is None or size(scenario) < size(before.noted.scenario):
                    smallest[shape] = kept
        complete = True
    except KeyboardInterrupt:
        gate.results.interrupted = True
    except TargetFault as fault:
        gate.results.fault = BreakOff.of(fault, gate.stderr())
    seconds = time.monotonic() - began
    gate.results.engines.append(EngineRun.of("baseline", "recorded", totals, seconds, complete))
    by_size = sorted(smallest.items(), key=lambda item: size(item[1].noted.scenario))
    return [write_difference(gate, kept._replace(seen=totals[shape])) for shape, kept in by_size]


def _difference(
    gate: GateContext,
    file: Path,
    line: int,
    record: Record,
    scenario: Scenario,
    totals: Counter[str],
) -> Kept | None:
    assert gate.base is not None
    pair = gate.base.pair
    pair.coverage.refused.clear()
    pair.sides[0].target = Recorded(record.answers)
    difference: Difference | None = None
    earlier: Difference | None = None
    try:
        outcome = replay(pair, scenario, ())
    except RecordError as error:
        raise FileError(f"{file}: line {line}: {error}") from None
    except (ConfigRefused, InputError):
        for refused in pair.coverage.refused.values():
            difference = refused.difference
        totals["refused"] += difference is None
    else:
        totals.update(outcome.counts)
        difference = pair.difference
        earlier = pair.differences[-2] if len(pair.differences) > 1 else None
    if difference is None:
        return None
    noted = Noted(scenario, record.engine, record.scale, difference)
    if difference.fields:  # replay once more, up to the difference, to show the preceding steps
        pair.sides[0].target = Recorded(record.answers)
        replay(pair, scenario, (), last_step=difference.step)
    recent = tuple(both for both in pair.recent if both.number < difference.step)
    return Kept(noted, difference, "", recent, earlier)
