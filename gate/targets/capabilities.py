"""What a target accepts and shows: asked once, before anything is judged."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetBroken
from ...model.replies import Started
from ...model.systems import config_keys, full_config
from ...model.target import Target
from ...properties.checking.session import Session
from ...spec.catalogue import Rule
from ...spec.systems import part
from .setup import POOL, Config, setup_of

SCALES = ("small", "short", "tight")
OWN = "own"  # the key of a configuration that has what a target declares


class Subject(NamedTuple):
    """A target, held to the rules of one revision of a system, in configurations in which some keys
    are `fixed`."""

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]
    fixed: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Probed:
    """What a target says of itself, every field that it shows in some configuration, the scales
    that it takes, for each scale the keys that have one value for it, and that value, and in words
    what it refused."""

    started: Started
    shows: frozenset[str] = frozenset()
    scales: list[str] = field(default_factory=list)
    fixed: dict[str, Config] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """By key that the target declares, its values."""
        return dict(self.started.choices)


def probe(subject: Subject) -> Probed:
    """Start the target once per scale and feature.

    Raises:
        ConfigRefused: it takes no scale at all.
        TargetFault: it does not start.
    """
    probed: Probed | None = None
    refusals: dict[str, ConfigRefused] = {}
    for scale in SCALES:
        if probed is not None and scale == "short" and "small" in probed.scales:
            continue  # what a few blocks can show has been seen with smaller ones
        try:
            plainest = _plainest(subject, scale)
        except ConfigRefused as refused:
            refusals[scale] = refused
            continue
        probed = probed or Probed(plainest.started)
        probed.scales.append(scale)
        probed.shows |= plainest.started.shows
        probed.fixed[scale] = {**_features(subject, plainest, probed), **subject.fixed}
    if probed is None:
        tried = " and ".join(f"{scale} ({refusal})" for scale, refusal in refusals.items())
        raise ConfigRefused(f"the target refuses the configuration of every scale: {tried}")
    if probed.choices and OWN not in config_keys(subject.system, subject.revision):
        keys = ", ".join(probed.choices)
        why = f"config_keys {keys} are of the generic system; valid: --system generic"
        raise TargetBroken("start", why, "")
    probed.left_out += [
        f"scale {scale} left out, the target refuses it: {refusal}"
        for scale, refusal in refusals.items()
    ]
    return probed


class Usual(NamedTuple):
    """The scales that a target takes with what is usual, what it says of itself there (None where
    it takes none), and by scale why it does not take the others."""

    scales: list[str]
    started: Started | None
    refusals: dict[str, str]


def as_usual(subject: Subject) -> Usual:
    """Start the target once per scale.

    Raises:
        TargetFault: it does not start.
    """
    scales, refusals = list[str](), dict[str, str]()
    started: Started | None = None
    for scale in SCALES:
        if scale == "short" and "small" in scales:
            continue  # as `probe` does
        try:
            values = {**setup_of(subject.system).scales[scale], **subject.fixed}
            started = _start(subject, values)
        except (ConfigRefused, InputError) as refusal:
            refusals[scale] = str(refusal)
        else:
            scales.append(scale)
    return Usual(scales, started, refusals)


class _Plainest(NamedTuple):
    """The plainest configuration of a scale that a target takes; with it what it refuses to be
    without (`instead`: key and value, `why`: its words)."""

    base: Config
    started: Started
    instead: Config = MappingProxyType({})
    why: str = ""


def _plainest(subject: Subject, scale: str) -> _Plainest:
    """The configuration without any feature; with a pool where there must be one, and with one
    feature that a target cannot be without: an option that it does not have at its usual value."""
    setup = setup_of(subject.system)
    plain = {**setup.scales[scale], **setup.plain, **subject.fixed}
    try:
        return _Plainest(plain, _start(subject, plain))
    except ConfigRefused as refused:
        why = refused
    pools: list[Config] = [{}, POOL] if plain.get("num_blocks", ...) is None else [{}]
    instead = [one for one in setup.features if not one.keys() & {*subject.fixed, *POOL}]
    for feature in ({}, *instead):
        for pool in pools:
            base = {**plain, **pool, **feature}
            with suppress(ConfigRefused, InputError):
                return _Plainest(base, _start(subject, base), feature, str(why))
    raise why


def _features(subject: Subject, plainest: _Plainest, probed: Probed) -> Config:
    """The features that the target refuses, at the values that it takes."""
    base = plainest.base
    fixed: dict[str, Any] = dict(plainest.instead)
    neutral = part(subject.system, "neutral") or {}
    for key, value in fixed.items():
        if not any(key in earlier for earlier in probed.fixed.values()):
            probed.left_out.append(f"{key} {value} alone, the target refuses more: {plainest.why}")
    for feature in setup_of(subject.system).features:
        key, value = next(iter(feature.items()))
        if key in fixed or key in subject.fixed or base.get(key, ...) == value:
            continue
        try:
            usual = full_config(subject.system, subject.revision, base)
            full_config(subject.system, subject.revision, {**base, **feature})
        except InputError:  # not a feature of this revision
            continue
        try:
            probed.shows |= _start(subject, {**base, **feature}).shows
        except ConfigRefused as refusal:
            if not any(key in earlier for earlier in probed.fixed.values()):
                line = f"{key} {value} left out, the target refuses it: {refusal}"
                probed.left_out.append(line)
            fixed[key] = usual.get(key, neutral.get(key))  # absent: it says nothing
    return fixed


def _start(subject: Subject, values: Config) -> Started:
    config = full_config(subject.system, subject.revision, values)
    return Session(subject.target, subject.system, subject.revision, config, subject.rules).started
