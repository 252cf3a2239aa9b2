"""Translate a configuration of one system into one of another system that shares some of its
keys."""

from collections.abc import Mapping
from typing import Any

from ...model.errors import InputError
from ...model.systems import config_keys, full_config
from ...spec.systems import part

LENGTH = "max_model_len"
LONG = 8_192  # tokens: more than a generated request has


def optional_in_effect(system: str, revision: str, fixed: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of `fixed` that are absent by default and whose values have an effect."""
    optional = fixed.keys() - full_config(system, revision, {}).keys()
    return frozenset(key for key in optional if fixed[key] != _neutral(system).get(key))


def with_fixed(
    system: str, revision: str, config: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the configuration with the fixed values. If a fixed optional key has an effect, all
    other optional keys are left out, since they may contradict it."""
    if optional_in_effect(system, revision, fixed):
        usual = full_config(system, revision, {})
        config = {key: config[key] for key in config if key in usual}
    return {**config, **fixed}


def fixed_for(system: str, revision: str, other: str, other_revision: str) -> dict[str, Any]:
    """Return values for the keys that only `system` has. With these values, `system` behaves like
    `other`.

    Raise InputError if a key of one of the systems always has an effect, so that the two have no
    configuration in common.
    """
    keys, others = _keys(system, revision), _keys(other, other_revision)
    for name, own, against in ((system, keys, others), (other, others, keys)):
        for key in own - against - {LENGTH}:
            if key not in _neutral(name):
                raise InputError(
                    "TARGET_B",
                    f"{system} and {other} have no configuration in common: {key} of {name} always "
                    "has an effect; valid: two targets of one system, or vllm, nano-vllm and "
                    "llmservingsim",
                )
    return {key: _neutral(system)[key] for key in sorted(keys - others - {LENGTH})}


def translated(
    config: Mapping[str, Any], system: str, revision: str, other: str, other_revision: str
) -> dict[str, Any]:
    """Translate a configuration of `system` into one of `other`. Shared keys keep their values, and
    all remaining keys must have no effect. Lengths are in tokens.

    Raises:
        InputError: a key that `other` lacks has an effect here, or the values do not fit together.
    """
    for key, neutral in fixed_for(system, revision, other, other_revision).items():
        if config.get(key, neutral) != neutral:
            raise InputError(
                f"$.config.{key}",
                f"{config[key]!r:.60} means nothing to {other}; valid: {neutral!r}",
            )
    others = _keys(other, other_revision)
    values = {key: config[key] for key in config if key in others}
    for key in others - values.keys():
        values[key] = _neutral(other).get(key, LONG)
    return full_config(other, other_revision, values)


def _keys(system: str, revision: str) -> frozenset[str]:
    return frozenset(config_keys(system, revision))


def _neutral(system: str) -> Mapping[str, Any]:
    return part(system, "neutral") or {}
