"""Choose the configurations of a gate: scales, features, and the keys that a user fixes."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.systems import config_keys, full_config
from ...spec.systems import part
from ..console.option_checks import check_unicode
from ..files.disk import unique_keys

Config = Mapping[str, Any]

# A pool that is large enough even for releases that do not reserve blocks.
POOL: Config = {"num_blocks": 64}


class Configuration(NamedTuple):
    """A configuration with a name that users see."""

    name: str
    changes: Config


ANY = Configuration("any", {})


class GateScales(NamedTuple):
    """The configurations in which targets of one system are judged; pools are in blocks.

    Attributes:
        scales: for each scale (small, short, tight), a configuration that a target must accept.
        plain: values that turn off every optional feature.
        features: optional features, each of which a target may refuse separately.
        kinds: kinds of configuration that a target may refuse, with an example of each. A search
            avoids the kinds that the target has refused.
        chunk_key: the key that bounds the prompt tokens in a step; None if each prompt is computed
            in one step.
        configurations: the configurations in which `matrix` and `campaign` judge each release.
    """

    scales: Mapping[str, Config]
    plain: Config = MappingProxyType({})
    features: tuple[Config, ...] = ()
    chunk_key: str | None = None
    configurations: tuple[Configuration, ...] = (ANY,)
    kinds: Mapping[str, Config] = MappingProxyType({})


def scales_of(system: str) -> GateScales:
    scales: GateScales = part(system, "scales")
    return scales


def read_changes(
    system: str, revision: str, changes: Sequence[str], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """Parse options `--config KEY=VALUE`, where VALUE is JSON or a plain word. Return the values by
    key.

    Raise InputError if a key is unknown, if no scale accepts a value, or if `fixed` gives the key
    another value.
    """
    keys = config_keys(system, revision)
    read: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key not in keys:
            raise InputError("--config", f"{change!r:.80}; valid: KEY=VALUE with {', '.join(keys)}")
        check_unicode("--config", change)
        try:
            value = json.loads(text, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError):
            value = text
        check_unicode("--config", json.dumps(value, ensure_ascii=False))  # it may be in an escape
        if key in fixed and value != fixed[key]:
            raise InputError(
                "--config",
                f"{change!r:.80}; valid: {key}={json.dumps(fixed[key])}, which both accept",
            )
        if key in read and value != read[key]:
            raise InputError("--config", f"{change!r:.80}: {key} is given twice")
        read[key] = value
    problem = None
    for values in scales_of(system).scales.values():
        try:
            full_config(system, revision, {**values, **read})
        except InputError as error:
            problem = error
        else:
            return read
    assert problem is not None
    raise InputError("--config", str(problem))
