"""The items of a campaign: independent pieces of work.

An item contains everything that determines its result, so any machine can run it, any number of
times. Its id is a digest of its content. The plan yields the items in a fixed order: a round of all
systems, scales and configurations, then the next round with other seeds.
"""

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

import msgspec

from ...model.scenario import Scenario

# The number of runs in an item; together they take one or two seconds.
EXAMPLES = {"small": 60, "short": 60, "tight": 30}
# Later items have up to ten times as many runs. Otherwise a long campaign on many cores would
# consist of many small messages.
ROUNDS_OF_ONE_LENGTH, LONGEST = 4, 10
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Row(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A part of a ledger."""


class Kind(_Row, frozen=True, kw_only=True):
    """A kind of search. `fixed` maps each configuration key that never varies to its value; `avoid`
    lists the kinds of configuration that the target refuses."""

    system: str
    revision: str
    scale: str
    fixed: dict[str, Any] = {}
    avoid: tuple[str, ...] = ()


class Settings(_Row, frozen=True, kw_only=True):
    """Everything that determines a campaign's plan. `code` is a digest of schedproof's code."""

    seed: int = 0
    pairs: tuple[tuple[str, str], ...] = ()
    rules: tuple[str, ...] = ()
    target: str = "model"
    kinds: tuple[Kind, ...] = ()
    code: str = ""


class Failure(_Row, frozen=True, kw_only=True):
    """A broken rule, with an unshrunk run that breaks it. `by_adapter` is set if only the adapter
    can be to blame."""

    rule: str
    shape: str
    message: str
    scenario: Scenario
    by_adapter: bool = False


class Sample(_Row, frozen=True, kw_only=True, tag="sample"):
    """An item that draws `examples` runs of one kind with Hypothesis and judges them by `rules`, or
    by all rules if `rules` is empty."""

    kind: Kind
    seed: int
    examples: int
    target: str = "model"
    rules: tuple[str, ...] = ()


class Shrinking(_Row, frozen=True, kw_only=True, tag="shrink"):
    """An item that replays and shrinks a failure. Such items are not planned: they run after the
    samples."""

    failure: Failure
    target: str = "model"
    rules: tuple[str, ...] = ()


Item = Sample | Shrinking


class Result(_Row, frozen=True, kw_only=True):
    """The result of an item. It never depends on where or when the item ran."""

    scenarios: Count = 0
    steps: Count = 0
    exercised: dict[str, Count] = {}
    failures: tuple[Failure, ...] = ()
    complete: bool = True
    failed: str = ""


def plan(settings: Settings) -> Iterator[Sample]:
    """Yield the items of a campaign in order, without end. If no rule applies to any kind, yield
    nothing."""
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
