"""Are the scheduler's methods still as an adapter knows them?

An adapter may name what it relies on, beside its factory:

    RELIES_ON = {"my_pkg.sched:Scheduler.schedule": "(self) -> dict[str, int]"}

`python -m schedproof.gate.targets.signatures MODULE:FACTORY` compares, in a process of its own, and
prints a JSON list of [name, as the adapter has it, as it is].
"""

import importlib
import inspect
import json
import sys
from typing import Any

Compared = list[tuple[str, str, str]]


def compared(module_name: str) -> Compared | None:
    """Every name of the module's RELIES_ON, None where there is none.

    Raises:
        TypeError: RELIES_ON is no dictionary of strings.
    """
    relied = getattr(importlib.import_module(module_name), "RELIES_ON", None)
    if relied is None:
        return None
    if not isinstance(relied, dict) or not all(
        isinstance(word, str) for pair in relied.items() for word in pair
    ):
        raise TypeError('RELIES_ON; valid: {"module:Class.method": "(self) -> int"}')
    return [(name, expected, _signature(name)) for name, expected in relied.items()]


def _signature(name: str) -> str:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
        return str(inspect.signature(found))
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Print the comparison for the target on the command line."""
    sys.path.insert(0, "")
    replies, sys.stdout = sys.stdout, sys.stderr
    json.dump(compared(sys.argv[1].partition(":")[0]), replies)


if __name__ == "__main__":
    main()
