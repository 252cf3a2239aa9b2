"""The items of a campaign: independent pieces of work.

An item holds everything that determines its result, so it can run on any machine, any number of
times. Its id is a digest of its content. The plan yields the items in a fixed order: one round of
all systems, scales and configurations, then the next round with other seeds.
"""

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from ...model.scenario import Scenario

EXAMPLES = {"small": 60, "short": 60, "tight": 30}  # runs of an item: one or two seconds
# Later items have up to ten times as many runs, so that a long campaign on many cores does not send
# many small messages.
ROUNDS_OF_ONE_LENGTH, LONGEST = 4, 10


class Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of search. `fixed` holds the keys that never vary, with their values; `avoid` lists
    the kinds of configuration that the target refuses."""

    system: str
    revision: str
    scale: str
    fixed: dict[str, Any] = {}
    avoid: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that determines the plan of a campaign; `code` is a digest of schedproof's
    code."""

    seed: int = 0
    pairs: tuple[tuple[str, str], ...] = ()
    rules: tuple[str, ...] = ()
    target: str = "model"
    kinds: tuple[Kind, ...] = ()
    code: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A broken rule, with a run that breaks it and has not been shrunk."""

    rule: str
    shape: str
    message: str
    scenario: Scenario


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="sample"):
    """Draw `examples` runs of one kind with Hypothesis; empty `rules` means all."""

    kind: Kind
    seed: int
    examples: int
    target: str = "model"
    rules: tuple[str, ...] = ()


class Shrinking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="shrink"):
    """Replay and shrink a failure. Such items follow the samples and are not part of the plan."""

    failure: Failure
    target: str = "model"
    rules: tuple[str, ...] = ()


Item = Sample | Shrinking


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an item; nothing in it depends on where or when the item ran."""

    scenarios: int = 0
    steps: int = 0
    exercised: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()
    complete: bool = True
    failed: str = ""


def plan(settings: Settings) -> Iterator[Sample]:
    """Yield the items of a campaign in order, endlessly, or nothing if no rule applies to any
    kind."""
    for number in count():
        for place, kind in enumerate(settings.kinds):
            yield Sample(
                kind=kind,
                seed=settings.seed * 2**32 + number * len(settings.kinds) + place,
                examples=EXAMPLES[kind.scale] * min(1 + number // ROUNDS_OF_ONE_LENGTH, LONGEST),
                target=settings.target,
                rules=settings.rules,
            )
        if not settings.kinds:
            return


def canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()[:16]
