"""Turn loads recorded from servers into scenarios.

A load records when each request arrived and how long it was; none of the formats contains the
prompts themselves. The supported formats are those of Mooncake, Azure and BurstGPT.

Sources: kvcache-ai/Mooncake (`FAST25-release/traces`), Azure/AzurePublicDataset
(`AzureLLMInferenceDataset2023.md`, `…2024.md`), HPMLL/BurstGPT (`README.md`).
"""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ...model.errors import InputError
from ...model.scenario import Request, Scenario, Segment
from ...model.systems import check_size, full_config, make_model
from .disk import FileError, check_regular, describe_error, name_file_in_errors, quote, text_keys

LAST_ARRIVAL = 10**7  # in steps; the scenario format allows no later arrival
MAX_LINE = 8 * 1024 * 1024  # bytes
Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Row(NamedTuple):
    """A request in a load: its row number counted from 1, its arrival time in ms, and its lengths
    in tokens.

    Each hash stands for a piece of the prompt and all pieces before it.
    """

    number: int
    time: float
    prompt: int
    output: int
    hashes: Sequence[int] = ()


@dataclass
class Load:
    """The rows of a file in order of arrival. `unfit` gives a reason for each row that was left
    out. `unused` lists the fields that a scenario cannot express."""

    rows: list[Row]
    unused: list[str]
    goes_on: bool
    unfit: dict[int, str] = field(default_factory=dict)


def read_load(form: str, path: Path, first: int, most: int, piece: int) -> Load:
    """Read up to `most` rows, starting at row `first`. Each hash stands for `piece` tokens.

    Raise FileError if the file cannot be read, or if a row does not have the format.
    """
    check_regular(path)
    unused: dict[str, None] = {}
    with name_file_in_errors(path, "read"), path.open("rb") as file:
        rows = FORMS[form](_Lines(path, file), first, piece, unused)
        read = list(islice(rows, min(most, sys.maxsize)))
        goes_on = next(rows, None) is not None
    if not read:
        raise FileError(
            f"{path}: the file ends before row {first:,}; valid: --from ROW, with a row that the "
            "file has"
        )
    return Load(sorted(read, key=lambda row: row.time), [*unused], goes_on)


def scenario_of_load(
    load: Load,
    name: str,
    setting: tuple[str, str, Mapping[str, Any]],
    step_ms: float,
    piece: int,
) -> Scenario:
    """Return the rows as a scenario, and record in `load.unfit` the rows that cannot run.

    Row 17 becomes the request r17. `setting` consists of system, revision and configuration. Raise
    InputError if the configuration is impossible, if a row arrives too late, if no row can run, or
    if the run is too large.
    """
    system, revision, values = setting
    model = make_model(system, revision, values)
    start, requests = load.rows[0].time, list[Request]()
    prompts = prompts_of(load.rows, piece)
    for row, prompt in zip(load.rows, prompts, strict=True):
        steps = (row.time - start) / step_ms  # infinite if a time is absurdly large
        if steps >= LAST_ARRIVAL + 1:
            raise InputError(
                "--step-ms",
                f"row {row.number:,} would arrive more than {LAST_ARRIVAL:,} steps after row "
                f"{load.rows[0].number:,}; valid: longer steps or fewer --requests",
            )
        if not prompt or not row.output:
            load.unfit[row.number] = f"{row.prompt} prompt tokens, {row.output} generated"
            continue
        request = Request(
            id=f"r{row.number}", arrival=int(steps), prompt=prompt, max_tokens=row.output
        )
        if (why := model.refusal(request)) is not None:
            load.unfit[row.number] = why
            continue
        requests.append(request)
    if not requests:
        number, why = next(iter(load.unfit.items()))
        raise InputError("--config", f"no row can run; row {number:,}: {why}")
    config = full_config(system, revision, values)
    check_size(system, revision, config, requests)
    return Scenario(
        name=name, system=system, revision=revision, config=config, requests=tuple(requests)
    )


def prompts_of(rows: Sequence[Row], piece: int) -> list[tuple[Segment, ...]]:
    """Return the prompts. Two prompts have the same tokens up to the first place at which their
    hashes differ. A prompt without hashes shares nothing with others."""
    before: dict[int, int | None] = {}
    # The hashes at which a new segment begins, because prompts differ right before or after them.
    begins: set[int] = set()
    after: dict[int, int] = {}
    for row in rows:
        for earlier, later in pairwise([None, *row.hashes]):
            assert later is not None
            if before.setdefault(later, earlier) != earlier or earlier is None:
                begins.add(later)
            if earlier is not None and after.setdefault(earlier, later) != later:
                begins |= {after[earlier], later}
    return [_prompt(row, piece, begins) for row in rows]


def _prompt(row: Row, piece: int, begins: set[int]) -> tuple[Segment, ...]:
    if not row.hashes:
        return ((f"r{row.number}", row.prompt),) if row.prompt else ()
    starts = [place for place, name in enumerate(row.hashes) if name in begins]
    ends = [*(place * piece for place in starts[1:]), row.prompt]
    return tuple(
        (f"h{row.hashes[place]}", end - place * piece)
        for place, end in zip(starts, ends, strict=True)
    )


def shared_tokens(load: Load, piece: int) -> int:
    """Return the number of prompt tokens that belong to a prefix of an earlier prompt. Rows that
    cannot run do not count."""
    # For each sequence of hashes from the beginning of a prompt, the number of its tokens. A
    # sequence is named by its last hash and the number of the sequence before it.
    numbers, tokens, shared = dict[tuple[int, int], int](), [0], 0
    for row in load.rows:
        if row.number in load.unfit:
            continue
        number, known = 0, 0
        for place, name in enumerate(row.hashes, 1):
            is_new = (number, name) not in numbers
            number = numbers.setdefault((number, name), len(tokens))
            end = min(place * piece, row.prompt)
            if is_new:
                tokens.append(end)
            else:
                known = min(tokens[number], end)
                tokens[number] = max(tokens[number], end)
        shared += known
    return shared


class _Lines:
    """The lines of a file as text. `number` is the number of the line that was read last."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file, self.number = path, file, 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(MAX_LINE + 1):
            self.number += 1
            if len(line) > MAX_LINE:
                raise self.error(f"longer than {MAX_LINE} bytes, so it cannot be a row")
            try:
                text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise self.error(f"not UTF-8 ({error.reason})") from None
            if not text.isspace():
                yield text

    def error(self, problem: str) -> FileError:
        return FileError(f"{self._path}: line {self.number}: {problem}")


class MooncakeRow(msgspec.Struct):
    """A row of a Mooncake trace. Its time is in ms. Each hash stands for 512 tokens of the prompt
    and all tokens before them."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()


def _mooncake(lines: _Lines, first: int, piece: int, unused: dict[str, None]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if number < first:
            continue
        try:
            data = json.loads(line, object_pairs_hook=text_keys)
        except (ValueError, RecursionError) as error:
            raise lines.error(f"not JSON: {error}; valid: one object per line") from None
        try:
            row = msgspec.convert(data, MooncakeRow)
        except msgspec.ValidationError as error:
            raise lines.error(describe_error("$", error, data)) from None
        except UnicodeEncodeError:  # the line is a string with half of a surrogate pair
            raise lines.error(f"$: {quote(data)}; valid: an object") from None
        _check_time(lines, "$.timestamp", row.timestamp)
        hashes, needed = row.hash_ids, -(-row.input_length // piece)
        if hashes and len(hashes) != needed:
            raise lines.error(
                f"$.hash_ids: {len(hashes)} ids; valid: {needed}, one per {piece} tokens of "
                f"input_length {row.input_length} (see --tokens-per-hash)"
            )
        unused |= dict.fromkeys(key for key in data if key not in MooncakeRow.__struct_fields__)
        yield Row(number, row.timestamp, row.input_length, row.output_length, hashes)


def _check_time(lines: _Lines, place: str, time: float) -> None:
    if not math.isfinite(time):
        raise lines.error(f"{place}: {time}; valid: a finite number")


class _Columns(NamedTuple):
    """The columns of a CSV file: the arrival time with its unit, and the lengths. `known` lists
    further columns of such files, which a scenario cannot express."""

    time: str
    prompt: str
    output: str
    milliseconds: Callable[[str], float]
    valid_time: str
    known: tuple[str, ...] = ()

    def rows(self, lines: _Lines, first: int, piece: int, unused: dict[str, None]) -> Iterator[Row]:
        table = csv.reader(iter(lines), strict=True)
        try:
            header = [name.strip() for name in next(table, [])]
            places = [self._place(lines, header, name) for name in self[:3]]
            unused |= dict.fromkeys(n for n in header if n not in (*self[:3], *self.known))
            for number, cells in enumerate(table, 1):
                if number >= first:
                    if len(cells) != len(header):
                        what = f"{len(cells)} fields; valid: {len(header)}, {', '.join(header)}"
                        raise lines.error(what)
                    time, prompt, output = (cells[place].strip() for place in places)
                    yield Row(
                        number,
                        self._time(lines, time),
                        _tokens(lines, self.prompt, prompt),
                        _tokens(lines, self.output, output),
                    )
        except csv.Error as error:
            raise lines.error(f"not CSV: {error}") from None

    def _place(self, lines: _Lines, header: list[str], name: str) -> int:
        if header.count(name) == 1:
            return header.index(name)
        problem = "missing" if name not in header else "given twice"
        named = f"{', '.join(header)!a:.80}"
        raise lines.error(f"column {name}: {problem} in the header {named}; valid: once")

    def _time(self, lines: _Lines, text: str) -> float:
        try:
            time = self.milliseconds(text)
        except (ValueError, OverflowError):
            raise lines.error(f"{self.time}: {quote(text)}; valid: {self.valid_time}") from None
        _check_time(lines, self.time, time)
        return time


def _tokens(lines: _Lines, column: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise lines.error(f"{column}: {quote(text)}; valid: a number of tokens, from 0")
    return int(text)


def _of_date(text: str) -> float:
    """Convert a date to milliseconds. A date without a time zone is taken as UTC."""
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000


AZURE = _Columns(
    *("TIMESTAMP", "ContextTokens", "GeneratedTokens", _of_date),
    "a date and time, such as 2023-11-16 18:17:03.979",
)
BURSTGPT = _Columns(
    *("Timestamp", "Request tokens", "Response tokens", lambda text: float(text) * 1000),
    "seconds from the start of the record",
    ("Model", "Total tokens", "Log Type", "Session ID", "Elapsed time"),
)
FORMS = {"mooncake": _mooncake, "azure": AZURE.rows, "burstgpt": BURSTGPT.rows}
