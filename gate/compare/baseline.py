"""Baselines: the recorded behaviour of one version of a scheduler, to compare later versions with.

A baseline is a file of gzipped JSON Lines in the format `schedproof/baseline@1`. It consists of a
header, a record for each scenario with all replies of the target, and a last line with the number
of records. Records are written one by one, but the file does not appear until it is complete.
"""

import contextlib
import gzip
import json
import shlex
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace
from rich.console import Console

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.replies import Started
from ...model.scenario import Scenario
from ...model.systems import resolve_revision
from ...model.target import Target
from ...properties.checking.difference import Difference
from ...properties.checking.recording import Answer, Recorded, Recorder, RecordError
from ...properties.checking.replay import replay
from ...properties.rules.registry import NEVER_CRASHES, NEVER_HANGS
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, size
from ..console import CONFORMS, interrupts, output
from ..corpus.folder import builtin_scenarios, max_steps, seed_corpus
from ..files.disk import check_regular, decode_json, name_file_in_errors, write_atomically
from ..files.scenario_file import FileError, scenario_json, scenario_of
from ..judging.base import Noted
from ..judging.context import BreakOff, GateContext
from ..judging.profiles import PROFILES
from ..judging.verdict import EngineRun, Progress, TargetInfo
from ..targets import probe as probing
from ..targets.probe import ProbeRequest
from ..targets.scales import scales_of
from .keeping import KeptDifference, write_difference

FORMAT: Literal["schedproof/baseline@1"] = "schedproof/baseline@1"
LONGEST_LINE = 256 * 1024 * 1024  # bytes
# A small compressed file may contain millions of empty objects or strings, each of which needs up
# to 60 times its length in memory.
MOST_VALUES = 8_000_000  # in a line
Line = TypeVar("Line", bound=msgspec.Struct)


class _Format(msgspec.Struct, frozen=True):
    format: str


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The recorded target, with the budget and the seed of the search that drew the scenarios."""

    format: Literal["schedproof/baseline@1"] = FORMAT
    target: TargetInfo
    system: str
    revision: str
    profile: str
    seed: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario, the engine and scale that produced it, and the target's replies in order."""

    engine: str
    scale: str
    scenario: dict[str, Any]
    answers: list[Answer]


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line: the number of records."""

    records: int


class Writer:
    """Writes a baseline, one record at a time."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self.records = 0

    def record(self, engine: str, scale: str, scenario: Scenario, answers: list[Answer]) -> None:
        plain = json.loads(scenario_json(scenario))
        self.line(Record(engine, scale, plain, answers))
        self.records += 1

    def line(self, value: Any) -> None:
        with name_file_in_errors(self._path):
            self._file.write(msgspec.json.encode(value) + b"\n")


@contextmanager
def writer(path: Path, header: Header) -> Iterator[Writer]:
    """Open a baseline for writing. Its file appears only if the `with` block ends without an
    error."""
    with write_atomically(path) as place:
        with name_file_in_errors(path):
            raw = place.open("wb")
        file: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0)
        try:
            book = Writer(path, file)
            book.line(header)
            yield book
            book.line(End(book.records))
        finally:
            with name_file_in_errors(path), raw, file:
                pass  # closes both files, and writes what is buffered


def read_baseline(path: Path) -> tuple[Header, Iterator[tuple[int, Record, Scenario]]]:
    """Return the header, and an iterator over (line number, record, scenario) that reads on demand.

    Both the call and the iterator raise FileError if the file is damaged, truncated or in another
    format.
    """
    lines = _lines(path)
    number, line = next(lines, (1, b""))
    if not line:
        raise FileError(f"{path}: empty; valid: a file that schedproof diff --save has written")
    given = _read(path, number, line, _Format).format
    if given != FORMAT:
        raise FileError(f"{path}: line 1: $.format: {given!a:.60}; supported: {FORMAT!r}")
    header = _read(path, number, line, Header)
    try:
        resolve_revision(header.system, header.revision)
    except InputError as error:
        raise FileError(f"{path}: line 1: {error}") from None
    return header, _records(path, lines, header)


def _records(
    path: Path, lines: Iterator[tuple[int, bytes]], header: Header
) -> Iterator[tuple[int, Record, Scenario]]:
    records = 0
    for number, line in lines:
        if line.startswith(b'{"records"'):
            end = _read(path, number, line, End)
            if end.records != records:
                problem = f"$.records: {end.records}, but the file contains {records}"
                raise FileError(f"{path}: line {number}: {problem}")
            if next(lines, None) is not None:
                raise FileError(f"{path}: line {number + 1}: nothing may follow the end")
            return
        record = _read(path, number, line, Record)
        # The error contains the place within the scenario. Add the scenario's line in the file.
        scenario = scenario_of(record.scenario, f"{path}: line {number}: $.scenario")
        if (scenario.system, scenario.revision) != (header.system, header.revision):
            problem = f"$.scenario is for {scenario.system} {scenario.revision}"
            valid = f"valid: {header.system} {header.revision}, as the first line says"
            raise FileError(f"{path}: line {number}: {problem}; {valid}")
        records += 1
        yield number, record, scenario
    raise FileError(f"{path}: truncated after {records} records: the last line is missing")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    check_regular(path)
    try:
        with gzip.open(path, "rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    problem = (
                        "longer than any record can be"
                        if len(line) == LONGEST_LINE
                        else "truncated"
                    )
                    raise FileError(f"{path}: line {number}: {problem}")
                if sum(map(line.count, (b",", b"{", b"["))) > MOST_VALUES:
                    problem = "more values than any record can have"
                    raise FileError(f"{path}: line {number}: {problem}")
                yield number, line
    except gzip.BadGzipFile as error:
        raise FileError(f"{path}: not a gzip file, or damaged ({error})") from None
    except (EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged or truncated ({error})") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except FileError:
        raise
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{str(path)!a}: {error}") from None


def _read(path: Path, number: int, line: bytes, kind: type[Line]) -> Line:
    return decode_json(line, f"{path}: line {number}", kind)


# A run that breaks one of these rules ends with a recorded answer that says so.
FAILS = frozenset({NEVER_CRASHES, NEVER_HANGS})


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
    """Record the corpus and the scenarios of a search at each scale. Return the exit code."""
    started, scales, fixed, avoid = _probe(recording)
    recording = recording._replace(fixed=fixed, avoid=avoid)
    info = TargetInfo.of(recording.spec, started)
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
                # The refusal has been recorded as the answer.
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
    """Start the target and find out what it accepts. Return its name and version, the accepted
    scales, the values to fix in every configuration, and the kinds of configuration that the target
    refuses.

    If the target accepts no scale unchanged, the fixed values turn off the features that it
    refuses.
    """
    request = ProbeRequest(
        recording.target, recording.system, recording.revision, (), recording.fixed
    )
    scales, started = probing.as_usual(request)
    if started is not None:
        base = {**scales_of(recording.system).scales[scales[0]], **recording.fixed}
        avoid = frozenset(probing.refused_kinds(request, base, recording.fixed, {}))
        return started, scales, recording.fixed, avoid
    known = probing.probe(request)
    return known.started, known.scales, known.fixed[known.scales[0]], known.refused_kinds


def _corpus(recording: Recording, scenarios: Mapping[str, Scenario]) -> Iterator[Scenario]:
    for scenario in scenarios.values():
        if max_steps(scenario) <= PROFILES[recording.profile_name].corpus_steps:
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
) -> list[KeptDifference]:
    """Replay a baseline on the target. For each kind of difference, keep the smallest run that
    shows it."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    smallest: dict[str, KeptDifference] = {}
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
) -> KeptDifference | None:
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
    if difference.fields:  # replay again, up to the difference, to show the steps before it
        pair.sides[0].target = Recorded(record.answers)
        replay(pair, scenario, (), last_step=difference.step)
    recent = tuple(both for both in pair.recent if both.number < difference.step)
    return KeptDifference(noted, difference, "", recent, earlier)
