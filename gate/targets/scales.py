"""What the gate configures the targets of each system with: scales and features."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...spec.systems import part

Config = Mapping[str, Any]

# A pool that is large enough for releases that reserve nothing, in blocks.
POOL: Config = {"num_blocks": 64}


class Configuration(NamedTuple):
    """Keys of the configuration that have one value, by a name for users."""

    name: str
    changes: Config = MappingProxyType({})


ANY = Configuration("any")


class GateScales(NamedTuple):
    """The configurations that targets of one system are judged in.

    Lengths are in tokens, pools in blocks.

    Attributes:
        scales: by scale (small, short, tight), the configuration that a target must accept.
        plain: values that turn off what a scheduler need not have.
        features: options beyond that, each of which a target may refuse by itself.
        chunk_key: the configuration key that bounds how many prompt tokens one step computes; None
            if a step computes a whole prompt.
        configurations: what releases are judged in one by one, by `matrix` and `campaign`.
    """

    scales: Mapping[str, Config]
    plain: Config = MappingProxyType({})
    features: tuple[Config, ...] = ()
    chunk_key: str | None = None
    configurations: tuple[Configuration, ...] = (ANY,)


def scales_of(system: str) -> GateScales:
    """Return the scales and features of a registered system."""
    scales: GateScales = part(system, "scales")
    return scales
