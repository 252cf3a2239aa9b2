"""Scenario files: reading with one clear error, writing without leaving half a file."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from ..model.errors import InputError
from ..model.scenario import FORMAT, Scenario, check_requests
from ..model.systems import full_config, resolve_revision

MAX_BYTES = 64 * 1024 * 1024


class FileError(ValueError):
    """A file that cannot be used; `str()` is one line with the file, the JSON path, the value."""


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file, its revision and configuration complete.

    Raises:
        FileError: unreadable, not JSON, another format, or a value that means nothing.
    """
    data = _load(path)
    if not isinstance(data, dict):
        raise FileError(f"{path}: $: a {type(data).__name__}; valid: a scenario object")
    if data.get("format") != FORMAT:
        raise FileError(f"{path}: $.format: {data.get('format')!r}; supported: {FORMAT!r}")
    try:
        scenario = msgspec.convert(data, Scenario)
        check_requests(scenario.requests)
        revision = resolve_revision(scenario.system, scenario.revision)
        config = full_config(scenario.system, revision, scenario.config)
        _check_expectation(scenario)
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {_with_path(error, data)}") from None
    except InputError as error:
        raise FileError(f"{path}: {error}") from None
    return msgspec.structs.replace(scenario, revision=revision, config=config)


def scenario_json(scenario: Scenario) -> str:
    """The scenario as the format writes it, one request a line."""
    data = {k: v for k, v in msgspec.to_builtins(scenario).items() if v is not None}
    data["requests"] = [_plain_request(request) for request in data["requests"]]
    lines = []
    for key, value in data.items():
        if key == "requests":
            rows = ",\n    ".join(json.dumps(row) for row in value)
            lines.append(f'  "requests": [\n    {rows}\n  ]')
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_scenario(scenario: Scenario, folder: Path, rule: str) -> Path:
    """Write a counterexample to `folder`, named by rule and content.

    The file appears whole or not at all.

    Raises:
        FileError: the folder cannot be written to.
    """
    core = [msgspec.to_builtins(one) for one in scenario.requests]
    identity = json.dumps([scenario.system, scenario.revision, scenario.config, core])
    name = f"{rule}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.json"
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(scenario_json(scenario), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written to ({error.strerror})") from None
    return path


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"{path}: larger than {MAX_BYTES} bytes, which no scenario is")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: byte {error.start} is not UTF-8") from None
    try:
        return json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constants)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise FileError(f"{path}: not JSON: {error.msg} ({place})") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not JSON: {error}") from None


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {double!r} is given twice in one object")
    return read


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _check_expectation(scenario: Scenario) -> None:
    if scenario.expect is None:
        return
    for index, entry in enumerate(scenario.expect.steps or ()):
        number = entry.get("step")
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InputError(
                f"$.expect.steps[{index}].step", f"{number!r}; valid: the number of a step, from 0"
            )


def _with_path(error: msgspec.ValidationError, data: Any) -> str:
    """`path: value: problem`, with the path that msgspec puts at the end."""
    problem, _, path = str(error).partition(" - at `")
    path = path.rstrip("`") or "$"
    value: Any = data
    for part in path.replace("[", ".[").split(".")[1:]:
        try:
            value = value[int(part[1:-1])] if part.startswith("[") else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            value = None
    shown = json.dumps(value)
    return f"{path}: {shown if len(shown) <= 60 else shown[:59] + '…'}: {problem}"


def _plain_request(request: dict[str, Any]) -> dict[str, Any]:
    """The request without what the format's defaults say anyway."""
    defaults = {"abort_at": None, "abort_inside": False, "priority": 0}
    plain = {k: v for k, v in request.items() if defaults.get(k, ...) != v}
    if plain.get("output_len") in (None, plain["max_tokens"]):
        plain.pop("output_len", None)
    return plain
