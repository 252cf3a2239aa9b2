"""One line of JSON that is data: an object, each key once, finite numbers, Unicode."""

import json
from typing import Any

import msgspec

decode = msgspec.json.Decoder().decode
UNFINISHED = "Input data was truncated"  # in the words of msgspec


class UnfinishedError(ValueError):
    """The beginning of an object, which ends before its end."""


def read_line(line: bytes) -> dict[str, Any]:
    """The object that a line is.

    Raises:
        UnfinishedError, ValueError: it is none; `str()` says why, without the line's number.
    """
    try:
        value = decode(line)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason})") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        said = str(error).removeprefix("JSON is malformed: ")
        kind = UnfinishedError if said == UNFINISHED and line.lstrip()[:1] == b"{" else ValueError
        raise kind(f"not JSON ({said}): {_begins(line)}; valid: one object a line") from None
    if type(value) is not dict:
        raise ValueError(f"{shown(value)}; valid: one object a line")
    # A key that is given twice leaves a colon too many; so does a colon in a text.
    if line.count(b":") != _keys(value):
        _check_keys(line)
    return value


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def with_path(path: str, error: msgspec.ValidationError, value: Any) -> str:
    """`path: value: problem`, for a value at `path` that msgspec refuses."""
    problem, _, place = str(error).rpartition(" - at `$")
    if not problem:
        return f"{path}: {shown(value)}: {error}"
    for part in place.rstrip("`").replace("[", ".[").split(".")[1:]:
        inner = value.get(part) if isinstance(value, dict) else None
        if part.startswith("[") and part[1:-1].isdigit() and isinstance(value, list):
            inner = value[int(part[1:-1])]
        if inner is None:  # msgspec does not say which
            break
        path, value = f"{path}{'' if part.startswith('[') else '.'}{part}", inner
    return f"{path}: {shown(value)}: {problem}"


def _keys(value: dict[str, Any]) -> int:
    """Keys of an object and of those in it, two levels deep: no line of a trace has more."""
    count = len(value)
    for inner in value.values():
        if type(inner) is dict:
            count += len(inner)
            for inmost in inner.values():
                if type(inmost) is dict:
                    count += len(inmost)
    return count


def _check_keys(line: bytes) -> None:
    json.loads(line, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"not JSON: key {double!a:.60} is given twice in one object")
    return read


def _begins(line: bytes) -> str:
    return ascii(line[:40].decode(errors="replace").rstrip("\r\n"))
