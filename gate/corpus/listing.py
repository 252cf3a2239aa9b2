"""`schedproof corpus list`: an entry in words and as data, and the built-in scenarios."""

from collections.abc import Iterator

from .builtin_scenarios import every_builtin
from .folder import Entry


def builtin_lines() -> Iterator[str]:
    """A line for each built-in scenario: its name, what it is of, and what it is about."""
    for name, scenario in every_builtin().items():
        about = (scenario.origin or {}).get("note", "")
        requests = len(scenario.requests)
        counted_requests = f"{requests} request{'s' * (requests != 1)}"
        said = f": {about}" if about else ""
        yield f"{name}  {scenario.system} {scenario.revision}, {counted_requests}{said}"


def line(entry: Entry) -> str:
    """What is known of an entry, its shape apart."""
    shown = row(entry)
    requests = f"{shown['requests']} request{'s' * (shown['requests'] != 1)}"
    parts = [
        f"{shown['rule']}",
        f"{shown['system']} {shown['revision']}",
        requests,
        f"{shown['expects']}",
    ]
    parts += [f"found on {shown['found_on']}"] * bool(shown["found_on"])
    parts += [f"{shown['found']}"] * bool(shown["found"])
    return f"{shown['file']}: {', '.join(parts)}"


def row(entry: Entry) -> dict[str, str | int]:
    """What is known of an entry, as data: `requests` is a number, all others are texts."""
    expect = entry.scenario.expect
    violates = ", ".join((expect and expect.violates) or ())
    return {
        "file": str(entry.path),
        "rule": entry.rule,
        "shape": entry.shape,
        "system": entry.scenario.system,
        "revision": entry.scenario.revision or "",
        "requests": len(entry.scenario.requests),
        "found_on": entry.found_on,
        "found": entry.origin.found,
        "expects": f"violates {violates}" if violates else "holds",
    }


def counted(number: int) -> str:
    """A number of entries, in words."""
    return f"{number} entr{'y' if number == 1 else 'ies'}"
