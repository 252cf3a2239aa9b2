"""Compare the signatures of a scheduler's methods with those that an adapter expects.

An adapter may declare the methods that it relies on, next to its factory:

    RELIES_ON = {"my_pkg.sched:Scheduler.schedule": "(self) -> dict[str, int]"}

`python -m schedproof.gate.targets.signatures MODULE:FACTORY` imports the adapter in its own process
and prints a JSON list of [name, expected signature, actual signature].
"""

import importlib
import inspect
import json
import os
import sys
from typing import Any

Compared = list[tuple[str, str, str]]


def compare(module_name: str) -> Compared | None:
    """Compare the signature of every name in the module's RELIES_ON, if it has one."""
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit):
        return []  # starting the target will report the error
    relied = getattr(module, "RELIES_ON", None)
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
        value: Any = importlib.import_module(module_name)
        for part in path.split("."):
            value = getattr(value, part)
        return str(inspect.signature(value))
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    sys.path.insert(0, "")
    # A C library of the adapter prints to descriptor 1, so redirect the descriptor itself.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with replies:
        json.dump(compare(sys.argv[1].partition(":")[0]), replies)


if __name__ == "__main__":
    main()
