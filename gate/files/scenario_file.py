"""Read scenario files, with a clear error for an invalid file. Write them atomically."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec

from ...model.errors import InputError
from ...model.scenario import (
    FORMAT,
    OF_FEATURES,
    Event,
    Expectation,
    Request,
    Scenario,
    check_requests,
)
from ...model.systems import check_features, check_size, full_config, resolve_revision
from ...properties.rules.predicate import Broken
from ...spec.catalogue import load
from .disk import (
    TOO_DEEP,
    describe_error,
    is_deep,
    name_file_in_errors,
    quote,
    read_text,
    text_keys,
    write,
)
from .disk import FileError as FileError  # for modules that read scenarios and need the error

MAX_BYTES = 64 * 1024 * 1024


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a file, with its revision and complete configuration filled in.

    Raise FileError if the file cannot be read, is not JSON, has another format, or contains an
    invalid value.
    """
    return scenario_of(_load(path), str(path))


def scenario_of(data: Any, path: str) -> Scenario:
    """Return the scenario in JSON data, with its revision and complete configuration filled in.
    Every error is a FileError that names the file `path`."""
    if not isinstance(data, dict):
        raise FileError(f"{path}: $: {quote(data)}; valid: a scenario object")
    if data.get("format") != FORMAT:
        given = quote(data.get("format"))
        raise FileError(f"{path}: $.format: {given}; supported: {quote(FORMAT)}")
    try:
        _check_keys(data)
        scenario = msgspec.convert(data, Scenario)
        check_requests(scenario.requests)
        revision = resolve_revision(scenario.system, scenario.revision)
        config = full_config(scenario.system, revision, scenario.config)
        check_features(scenario, revision, config)
        check_size(scenario.system, revision, config, scenario.requests)
        _check_expectation(scenario)
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {describe_error('$', error, data)}") from None
    except InputError as error:
        raise FileError(f"{path}: {error}") from None
    return msgspec.structs.replace(scenario, revision=revision, config=config)


def scenario_json(scenario: Scenario) -> str:
    """Return the scenario in its published format, one request per line."""
    data = {k: v for k, v in msgspec.to_builtins(scenario).items() if v is not None}
    data["requests"] = [_plain_request(request) for request in data["requests"]]
    if not data["events"]:
        del data["events"]
    lines = []
    for key, value in data.items():
        if key in ("requests", "events"):
            rows = ",\n    ".join(json.dumps(row) for row in value)
            lines.append(f'  "{key}": [\n    {rows}\n  ]')
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def with_rule(scenario: Scenario, rule: str) -> Scenario:
    """Return the scenario with `rule` in its origin, unless it already names a rule. A corpus entry
    needs this."""
    origin = scenario.origin or {}
    if origin.get("rule") or all(known.id != rule for known in load(scenario.system)):
        return scenario
    return msgspec.structs.replace(scenario, origin={**origin, "rule": rule})


def write_failure(scenario: Scenario, folder: Path, broken: Broken) -> Path:
    """Write the scenario of a failure. If it cannot be written, for example because the disk is
    full, raise a FileError that says which rule is broken."""
    try:
        return write_scenario(scenario, folder, broken.rule)
    except FileError as error:
        says = f"{broken.rule} is broken in step {broken.step}: {broken.message}"
        raise FileError(f"{says}; {error}") from None


def write_scenario(scenario: Scenario, folder: Path, rule: str) -> Path:
    """Write a counterexample to `folder`, atomically. Its file name is derived from the rule and
    the content. Raise FileError if the folder cannot be written to.

    A corpus entry with the same content is not overwritten, because the entry also records an
    expectation.
    """
    path = folder / file_name(scenario, rule)
    scenario = with_rule(scenario, rule)
    with name_file_in_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Never write through a link, which may lead to another user's file, or into a pipe, which
        # may have no reader.
        if path.is_symlink() or path.is_fifo():
            path.unlink()
    if scenario.expect is None and _is_entry_of(scenario, path, rule):
        return path
    write(path, scenario_json(scenario).encode())
    return path


def _is_entry_of(scenario: Scenario, path: Path, rule: str) -> bool:
    if not path.is_file():
        return False
    try:
        existing = read_scenario(path)
    except FileError:
        return False
    return existing.expect is not None and file_name(existing, rule) == file_name(scenario, rule)


def file_name(scenario: Scenario, rule: str) -> str:
    runs = [
        [request.for_target(), request.arrival, request.abort_at, request.abort_inside]
        for request in scenario.requests
    ]
    events = [[[event.step, event.kind] for event in scenario.events]] if scenario.events else []
    identity = json.dumps([scenario.system, scenario.revision, scenario.config, runs, *events])
    return f"{rule}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.json"


def _load(path: Path) -> Any:
    text = read_text(path, MAX_BYTES, "scenario")
    try:
        value = json.loads(
            text,
            object_pairs_hook=text_keys,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise FileError(f"{path}: not JSON: {error.msg} ({place})") from None
    except ValueError as error:
        raise FileError(f"{path}: not JSON: {error}") from None
    except RecursionError:
        raise FileError(f"{path}: {TOO_DEEP}") from None
    if is_deep(text.encode()):
        raise FileError(f"{path}: {TOO_DEEP}")
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def _check_expectation(scenario: Scenario) -> None:
    if scenario.expect is None:
        return
    if scenario.expect.holds is False:
        raise InputError(
            "$.expect.holds",
            "false; valid: true (to expect broken rules, list their ids in `violates`)",
        )
    if scenario.expect.holds and scenario.expect.violates:
        raise InputError("$.expect", "expects that every rule holds, and that some are broken")
    for index, entry in enumerate(scenario.expect.steps or ()):
        number = entry.get("step")
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InputError(
                f"$.expect.steps[{index}].step",
                f"{quote(number)}; valid: the number of a step, from 0",
            )


def _check_keys(data: dict[str, Any]) -> None:
    places: list[tuple[str, Any, type[msgspec.Struct]]] = [("$", data, Scenario)]
    places.append(("$.expect", data.get("expect"), Expectation))
    requests, events = data.get("requests"), data.get("events")
    if isinstance(events, list):
        places += [(f"$.events[{i}]", event, Event) for i, event in enumerate(events)]
    if isinstance(requests, list):
        places += [(f"$.requests[{i}]", request, Request) for i, request in enumerate(requests)]
    for path, value, kind in places:
        fields = kind.__struct_fields__
        unknown = [key for key in value if key not in fields] if isinstance(value, dict) else []
        if unknown:
            valid = ", ".join(fields)
            raise InputError(f"{path}.{ascii(unknown[0])[1:-1]}", f"unknown key; valid: {valid}")


def _plain_request(request: dict[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"abort_at": None, "abort_inside": False, "priority": 0}
    defaults |= {"accepted": (), "encoder_inputs": (), "sent_as": None, **OF_FEATURES}
    plain = {k: v for k, v in request.items() if defaults.get(k, ...) != v}
    if plain.get("output_len") in (None, plain["max_tokens"]):
        plain.pop("output_len", None)
    return plain
