"""What comes out of an item: nothing in it depends on where or when the item ran."""

from typing import Any

import msgspec

from ...model.scenario import Scenario


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A broken rule as it was found: its shape, its numbers, and the run, not made small yet."""

    rule: str
    shape: str
    message: str
    scenario: Scenario


class NearMiss(msgspec.Struct, frozen=True, kw_only=True):
    """How near a run came to a limit: `left` of it remained, in its units (below 0: beyond it), in
    this configuration."""

    left: int
    config: dict[str, Any]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item has shown.

    Attributes:
        scenarios: runs, or states explored, or lemmas asked about.
        steps: of the scheduler, or transitions.
        exercised: per rule, how often its witness occurred (steps, or limits of a scope).
        near: per limit, by its configuration key, the nearest miss.
        failures: rules that broke.
        says: per lemma, what the solver says of it.
        complete: nothing was left out: every run of the scope, every example.
        failed: why there is no result, or not all of it, in one line; empty where there is.
    """

    scenarios: int = 0
    steps: int = 0
    exercised: dict[str, int] = {}
    near: dict[str, NearMiss] = {}
    failures: tuple[Failure, ...] = ()
    says: dict[str, str] = {}
    complete: bool = True
    failed: str = ""


def result_of(content: bytes) -> Result:
    """The result that `items.canonical` wrote.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return msgspec.json.decode(content, type=Result)
