"""What the systems have in common: `shared.toml`, read."""

import tomllib
from importlib import resources

import msgspec


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic, the ids of the rules that word it by system, and where the systems differ."""

    title: str
    rules: dict[str, tuple[str, ...]]
    differs: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    topic: tuple[Topic, ...]


def topics() -> tuple[Topic, ...]:
    """All topics, in the order of the file."""
    text = resources.files("schedproof.spec").joinpath("shared.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _File).topic
