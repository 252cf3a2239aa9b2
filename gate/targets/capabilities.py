"""What a target accepts and shows: asked once, before anything is judged."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.replies import Started
from ...model.systems import full_config
from ...model.target import Target
from ...properties.checking.session import Session
from ...spec.catalogue import Rule
from .setup import POOL, Config, setup_of

SCALES = ("small", "short", "tight")


class Subject(NamedTuple):
    """A target, held to the rules of one revision of a system."""

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]


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
            base, started = _plainest(
                subject,
                {**setup_of(subject.system).scales[scale], **setup_of(subject.system).plain},
            )
        except ConfigRefused as refused:
            refusals[scale] = refused
            continue
        probed = probed or Probed(started)
        probed.scales.append(scale)
        probed.shows |= started.shows
        probed.fixed[scale] = _features(subject, base, probed)
    if probed is None:
        tried = " and ".join(f"{scale} ({refusal})" for scale, refusal in refusals.items())
        raise ConfigRefused(f"the target refuses the configuration of every scale: {tried}")
    probed.left_out += [
        f"scale {scale} left out, the target refuses it: {refusal}"
        for scale, refusal in refusals.items()
    ]
    return probed


def _plainest(subject: Subject, base: Config) -> tuple[Config, Started]:
    """The configuration without any feature; with a pool where there must be one."""
    try:
        return base, _start(subject, base)
    except ConfigRefused as refused:
        with_pool = {**base, **POOL}
        if base.get("num_blocks", ...) is None:
            with suppress(ConfigRefused):
                return with_pool, _start(subject, with_pool)
        raise refused


def _features(subject: Subject, base: Config, probed: Probed) -> Config:
    """The features that the target refuses, at the values that it takes."""
    fixed: dict[str, Any] = {}
    for feature in setup_of(subject.system).features:
        key, value = next(iter(feature.items()))
        if key in fixed or base.get(key, ...) == value:
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
            fixed[key] = usual.get(key, 0)  # absent, which is none
    return fixed


def _start(subject: Subject, values: Config) -> Started:
    config = full_config(subject.system, subject.revision, values)
    return Session(subject.target, subject.system, subject.revision, config, subject.rules).started
