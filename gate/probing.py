"""What a gate asks of a target before it searches: what does it take, and what does it show?"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..model.errors import InputError
from ..model.faults import ConfigRefused
from ..model.replies import Started
from ..model.systems import full_config
from ..properties.session import Session
from .state import Gate

Config = Mapping[str, Any]

SCALES = ("small", "short", "tight")
# May blocks be this small? Lengths in tokens.
PROBES: Mapping[str, Mapping[str, Config]] = {
    "spyre": {
        "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "short": {"chunk_size": 128, "max_model_len": 256, "max_batch_tkv": 768},
        "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
    },
    "vllm": {
        "small": {"block_size": 2, "max_num_seqs": 4, "max_model_len": 16},
        "short": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 64},
        "tight": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 256},
    },
    "nano_vllm": {
        "small": {"block_size": 2, "num_blocks": 8, "max_num_seqs": 4},
        "short": {"block_size": 16, "num_blocks": 8, "max_num_seqs": 4},
        "tight": {"block_size": 256, "num_blocks": 8, "max_num_seqs": 4},
    },
    "llmservingsim": {
        "small": {"block_size": 2, "max_num_seqs": 4},
        "short": {"block_size": 16, "max_num_seqs": 4},
        "tight": {"block_size": 16, "max_num_seqs": 4},
    },
}
# A pool that is large enough for releases that reserve nothing.
POOL: Config = {"num_blocks": 64}
# What every scheduler can leave out, and what it may have beside that.
PLAIN: Mapping[str, Config] = {
    "spyre": {"prefix_caching": False, "num_blocks": None},
    "vllm": {"enable_prefix_caching": False, "num_blocks": None},
    "nano_vllm": {},
    "llmservingsim": {"enable_prefix_caching": False, "num_blocks": None},
}
FEATURES: Mapping[str, tuple[Config, ...]] = {
    "spyre": (
        {"prefix_caching": True},
        POOL,
        {"interleave": False},
        {"pausing": False},
        {"long_output_priority": True},
    ),
    "vllm": (
        {"enable_prefix_caching": True},
        POOL,
        {"enable_chunked_prefill": False},
        {"policy": "priority"},
        {"watermark": 0.1, **POOL},
        {"reserve_full_isl": False},
        {"long_prefill_token_threshold": 4},
    ),
    "nano_vllm": (),
    "llmservingsim": (
        {"enable_prefix_caching": True},
        POOL,
        {"enable_chunked_prefill": False},
        {"prioritize_prefill": True},
        {"long_prefill_token_threshold": 4},
        {"max_num_seqs": 0},
    ),
}


@dataclass
class Probed:
    """What a target says of itself, every field that it shows in some configuration, the scales
    that it takes, for each scale the keys that have one value for it, and that value, and in words
    what it refused."""

    started: Started
    observes: frozenset[str] = frozenset()
    scales: list[str] = field(default_factory=list)
    fixed: dict[str, Config] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def probe(gate: Gate) -> Probed:
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
            base, started = _plainest(gate, {**PROBES[gate.system][scale], **PLAIN[gate.system]})
        except ConfigRefused as refused:
            refusals[scale] = refused
            continue
        probed = probed or Probed(started)
        probed.scales.append(scale)
        probed.observes |= started.observes
        probed.fixed[scale] = _features(gate, base, probed)
    if probed is None:
        tried = " and ".join(f"{scale} ({refusal})" for scale, refusal in refusals.items())
        raise ConfigRefused(f"the target refuses the configuration of every scale: {tried}")
    probed.left_out += [
        f"scale {scale} left out, the target refuses it: {refusal}"
        for scale, refusal in refusals.items()
    ]
    return probed


def _plainest(gate: Gate, base: Config) -> tuple[Config, Started]:
    """The configuration without any feature; with a pool where there must be one."""
    try:
        return base, _start(gate, base)
    except ConfigRefused as refused:
        with_pool = {**base, **POOL}
        if base.get("num_blocks", ...) is None:
            with suppress(ConfigRefused):
                return with_pool, _start(gate, with_pool)
        raise refused


def _features(gate: Gate, base: Config, probed: Probed) -> Config:
    """The features that the target refuses, at the values that it takes."""
    fixed: dict[str, Any] = {}
    for feature in FEATURES[gate.system]:
        key, value = next(iter(feature.items()))
        if key in fixed or base.get(key, ...) == value:
            continue
        try:
            usual = full_config(gate.system, gate.revision, base)
            full_config(gate.system, gate.revision, {**base, **feature})
        except InputError:  # not a feature of this revision
            continue
        try:
            probed.observes |= _start(gate, {**base, **feature}).observes
        except ConfigRefused as refusal:
            if not any(key in earlier for earlier in probed.fixed.values()):
                line = f"{key} {value} left out, the target refuses it: {refusal}"
                probed.left_out.append(line)
            fixed[key] = usual[key]
    return fixed


def _start(gate: Gate, values: Config) -> Started:
    config = full_config(gate.system, gate.revision, values)
    return Session(gate.target, gate.system, gate.revision, config, gate.rules).started
