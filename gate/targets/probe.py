"""Before a target is judged, find out which configurations it accepts and which fields it shows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.faults import (
    ConfigRefused,
    TargetBroken,
    TargetCrashed,
    TargetDied,
    TargetFault,
    TargetTooLarge,
)
from ...model.replies import Started
from ...model.systems import config_keys, full_config, reference
from ...model.target import Target
from ...properties.checking.session import start_target
from ...spec.catalogue import Rule
from ...spec.systems import part
from .scales import POOL, Config, scales_of

SCALES = ("small", "short", "tight")
CRASHES = (TargetCrashed, TargetDied, TargetTooLarge)
OWN = "own"  # the configuration key that contains the keys declared by a target


class ProbeRequest(NamedTuple):
    """A target, the rules that judge it, and the keys whose values are fixed in every start."""

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]
    fixed: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Capabilities:
    """The configurations and features that a target accepts, and the fields that it shows.

    `fixed` contains, for each scale, the keys for which the target accepts only one value.
    `refused` gives the reason for each feature and each kind of configuration (`GateScales.kinds`)
    that the target refuses; `refused_kinds` lists only the kinds. If the target crashes at `start`
    with a feature, a kind or a scale, `crashes` gives the configuration and the crash. `left_out`
    contains messages for the user about everything else that is not judged.
    """

    started: Started
    shows: frozenset[str] = frozenset()
    scales: list[str] = field(default_factory=list)
    fixed: dict[str, Config] = field(default_factory=dict)
    refused_kinds: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    crashes: dict[str, tuple[Config, TargetFault]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def notices(self, *, in_one: bool = False) -> list[str]:
        """Return messages about everything that is not judged. With `in_one`, a single message
        lists everything that the target refuses, and gives only the first reason."""
        why = "left out, because the target refuses"
        if in_one and len(self.refused) > 1:
            first = next(iter(self.refused.values()))
            names = ", ".join(self.refused)
            return [f"{names}: {why} them. The reason for the first one: {first}", *self.left_out]
        refused = [f"{what} {why} it: {reason}" for what, reason in self.refused.items()]
        return refused + self.left_out

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Return the possible values of each configuration key that the target itself declares."""
        return dict(self.started.choices)


def probe(request: ProbeRequest) -> Capabilities:
    """Start the target once per scale and feature.

    Raises:
        ConfigRefused: the target accepts no scale.
        TargetFault: the target does not start, or breaks the protocol. A crash is raised only if
            the target has not started before.
    """
    capabilities: Capabilities | None = None
    refusals: dict[str, ConfigRefused] = {}
    for scale in SCALES:
        if capabilities is not None and scale == "short" and "small" in capabilities.scales:
            continue  # `small` shows everything that `short` can show
        try:
            plainest = _plainest(request, scale)
        except ConfigRefused as refused:
            refusals[scale] = refused
            continue
        except CRASHES as crash:
            if capabilities is None:
                raise
            scales = scales_of(request.system)
            config = {**scales.scales[scale], **scales.plain, **request.fixed}
            capabilities.crashes[f"scale {scale}"] = config, crash
            continue
        if capabilities is None:
            capabilities = Capabilities(plainest.started)
            capabilities.left_out += _without_features(request, plainest.started)
        fixed = {**_features(request, plainest, capabilities), **request.fixed}
        if not capabilities.scales:
            kinds = refused_kinds(request, plainest.base, fixed, capabilities.crashes)
            capabilities.refused_kinds = frozenset(kinds)
            capabilities.refused |= kinds
        capabilities.scales.append(scale)
        capabilities.shows |= plainest.started.shows
        capabilities.fixed[scale] = fixed
    if capabilities is None:
        tried = " and ".join(f"{scale} ({refusal})" for scale, refusal in refusals.items())
        raise ConfigRefused(f"the target refuses the configuration of every scale: {tried}")
    if capabilities.choices and OWN not in config_keys(request.system, request.revision):
        keys = ", ".join(capabilities.choices)
        why = f"only the generic system has config_keys ({keys}); valid: --system generic"
        raise TargetBroken("start", why, "")
    capabilities.left_out += _without_controls(request, capabilities.started)
    capabilities.left_out += [
        f"scale {scale} left out, because the target refuses it: {refusal}"
        for scale, refusal in refusals.items()
    ]
    return capabilities


def undeclared(system: str, started: Started) -> list[str]:
    """Return the keys of the optional features that the target does not declare."""
    return [key for key in reference(system).features if key not in started.features]


def _without_features(request: ProbeRequest, started: Started) -> list[str]:
    """Return messages about the optional features that the target does not declare and that are
    therefore never used.

    Raise TargetBroken if the target declares a feature that the system does not have.
    """
    features = reference(request.system).features
    if unknown := sorted(started.features - {*features}):
        why = f"features has {unknown[0]!r}; valid: {', '.join(features) or 'none'}"
        raise TargetBroken("start", why, "")
    missing = undeclared(request.system, started)
    why = "left out, because the target does not declare them in features"
    return [f"features {', '.join(missing)} {why}"] if missing else []


def _without_controls(request: ProbeRequest, started: Started) -> list[str]:
    # Import late: Hypothesis takes long to import, and commands that only replay do not probe.
    from ...properties.search.generators import generators_of

    drawn = getattr(generators_of(request.system), "CONTROLS", ())
    missing = [kind for kind in dict.fromkeys(drawn) if kind not in started.controls]
    why = "left out, because the target does not declare them in controls"
    return [f"control events {', '.join(missing)} {why}"] if missing else []


def as_usual(request: ProbeRequest) -> tuple[list[str], Started | None]:
    """Return the scales that the target accepts as they are, and a reply to `start`."""
    scales = list[str]()
    started: Started | None = None
    for scale in SCALES:
        if scale == "short" and "small" in scales:
            continue  # `small` shows everything that `short` can show
        values = {**scales_of(request.system).scales[scale], **request.fixed}
        with suppress(ConfigRefused, InputError):
            started = _start(request, values)
            scales.append(scale)
    return scales, started


class _Plainest(NamedTuple):
    """A scale's configuration with as few features as the target accepts.

    `instead` is a feature that the target requires, if any. `why` is the target's message when that
    feature is off.
    """

    base: Config
    started: Started
    instead: Config = MappingProxyType({})
    why: str = ""


def _plainest(request: ProbeRequest, scale: str) -> _Plainest:
    """Start the target with as few features as it accepts."""
    scales = scales_of(request.system)
    plain = {**scales.scales[scale], **scales.plain, **request.fixed}
    try:
        return _Plainest(plain, _start(request, plain))
    except ConfigRefused as refused:
        why = refused
    pools: list[Config] = [{}, POOL] if plain.get("num_blocks", ...) is None else [{}]
    instead = [
        feature for feature in scales.features if not feature.keys() & {*request.fixed, *POOL}
    ]
    for feature in ({}, *instead):
        for pool in pools:
            base = {**plain, **pool, **feature}
            with suppress(ConfigRefused, InputError):
                return _Plainest(base, _start(request, base), feature, str(why))
    raise why


def _features(request: ProbeRequest, plainest: _Plainest, capabilities: Capabilities) -> Config:
    # A feature may appear twice, once in combination with another one. It counts as refused only if
    # the target refuses both.
    base = plainest.base
    refused, instead = dict[str, tuple[str, str]](), dict[str, Any]()
    taken: set[str] = set()
    fixed: dict[str, Any] = dict(plainest.instead)
    neutral = part(request.system, "neutral") or {}
    for key, value in fixed.items():
        if not any(key in earlier for earlier in capabilities.fixed.values()):
            capabilities.left_out.append(
                f"always {key} {value}, because the target does not start otherwise: {plainest.why}"
            )
    unused = undeclared(request.system, plainest.started)
    features = scales_of(request.system).features
    firsts = {next(iter(feature)) for feature in features}
    for feature in features:
        key, value = next(iter(feature.items()))
        if key in fixed or key in request.fixed or base.get(key, ...) == value or key in taken:
            continue
        try:
            usual = full_config(request.system, request.revision, base)
            full_config(request.system, request.revision, {**base, **feature})
        except InputError:  # this revision lacks the feature
            continue
        sizes = feature.keys() - firsts - usual.keys()  # keys that make sense only with the feature
        if key in unused:
            instead[key] = neutral.get(key)
            continue
        try:
            capabilities.shows |= _start(request, {**base, **feature}).shows
        except ConfigRefused as refusal:
            refused.setdefault(key, (f"{key} {value}", str(refusal)))
            instead |= {size: neutral.get(size) for size in sizes}
            instead[key] = usual.get(key, neutral.get(key))  # `usual` may lack the key
            continue
        except CRASHES as crash:
            capabilities.crashes.setdefault(f"{key} {value}", ({**base, **feature}, crash))
        taken.add(key)
        refused.pop(key, None)
        for accepted in (key, *sizes):
            instead.pop(accepted, None)
    for key, (what, why) in refused.items():
        if not any(key in earlier for earlier in capabilities.fixed.values()):
            capabilities.refused[what] = why
    return fixed | instead


def refused_kinds(
    request: ProbeRequest,
    base: Config,
    fixed: Config,
    crashes: dict[str, tuple[Config, TargetFault]],
) -> dict[str, str]:
    """Return the kinds of configuration that the target refuses, each with the reason. Kinds
    that set a `fixed` key are skipped. `base` is a configuration that the target accepts. Add the
    kinds with which the target crashes to `crashes`."""
    refused = {}
    for kind, values in scales_of(request.system).kinds.items():
        if values.keys() & fixed.keys():
            continue
        try:
            _start(request, {**base, **values})
        except InputError:  # this revision lacks such a key
            continue
        except ConfigRefused as refusal:
            refused[kind] = str(refusal)
        except CRASHES as crash:
            crashes[kind] = {**base, **values}, crash
    return refused


def _start(request: ProbeRequest, values: Config) -> Started:
    config = full_config(request.system, request.revision, values)
    return start_target(request.target, request.system, request.revision, config)
