"""What a campaign consists of: items, each a piece of work that depends on nothing but itself.

An item says everything that its result follows from, so that it may run anywhere, and again. Its
id is a digest of its content.
"""

import hashlib
from typing import Any

import msgspec

from .results import Failure


class Sample(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="engine",
    tag="hypothesis",
):
    """Runs that Hypothesis draws.

    Attributes:
        scale: of the configurations that are drawn.
        examples: runs.
        config: the only configuration, instead of those of the scale.
        fixed: keys of the configuration that have one value only.
        known: shapes of failures that are known: a run ends there, and is no finding.
        rules: ids of the rules that are judged; empty for every rule of the revision.
        first: of its kind in the campaign: what a shared example database has is tried here.
    """

    system: str
    revision: str
    scale: str
    seed: int
    examples: int
    target: str = "model"
    config: dict[str, Any] | None = None
    fixed: dict[str, Any] = {}
    known: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    first: bool = False


class Exploring(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="engine", tag="explore"
):
    """Every run of so many requests in a scope, at all of its limits.

    `transitions`: moves after which it is broken off.
    """

    system: str
    revision: str
    scope: str
    requests: int
    transitions: int
    rules: tuple[str, ...] = ()


class Proving(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="engine", tag="z3"
):
    """The lemmas of a rule, for blocks of so many tokens; with `limit`, the fewest requests, up to
    `requests`, that exceed this max_batch_tkv."""

    system: str
    revision: str
    rule: str
    block: int
    limit: int = 0
    requests: int = 0


class Shrinking(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="engine", tag="shrink"
):
    """A failure to be replayed and made small: after the others, and no part of the plan."""

    failure: Failure
    target: str = "model"
    rules: tuple[str, ...] = ()


Item = Sample | Exploring | Proving | Shrinking
ENGINES = ("hypothesis", "explore", "z3")


def engine_of(item: Item) -> str:
    """The name of the engine that runs it."""
    return str(item.__struct_config__.tag)


def canonical(value: Any) -> bytes:
    """The value as JSON, the same for the same content."""
    return msgspec.json.encode(value, order="sorted")


def id_of(item: Item) -> str:
    """Sixteen hexadecimal digits of the item's content."""
    return hashlib.sha256(canonical(item)).hexdigest()[:16]


def item_of(content: bytes) -> Item:
    """The item that `canonical` wrote.

    Raises:
        msgspec.DecodeError: it is none.
    """
    read: Item = msgspec.json.decode(content, type=Item)
    return read
