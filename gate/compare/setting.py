"""Determine what `schedproof diff` compares: the systems of the scenarios and of each target,
and the fixed values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.systems import check_system, full_config, make_model, resolve_revision
from ...properties.checking.translation import fixed_for, translated
from ...spec.systems import first_system
from ..console.option_checks import option
from ..targets.scales import read_changes
from ..targets.target_spec import TargetSpec

PATHS = ("--path-a", "--path-b")


class Setting(NamedTuple):
    """What a comparison uses: the system and revision of the scenarios and of each target, and the
    values that are fixed in every configuration."""

    system: str
    revision: str
    sides: tuple[tuple[str, str], ...]
    fixed: Mapping[str, Any]


def read_setting(
    specs: Sequence[TargetSpec], system: str | None, revision: str | None, changes: Sequence[str]
) -> Setting:
    """Return the setting. Raise InputError if no scenarios fit both targets."""
    own = [spec.own_system for spec in specs]
    defaults = []
    for spec, place in zip(specs, PATHS, strict=False):
        with option(place):
            defaults.append(spec.default_revision())
    meant_system = system or next(
        (own_system for own_system in own if own_system is not None), first_system()
    )
    with option("--system"):
        check_system(meant_system)
    if system is not None and None not in own and system not in own:
        valid = ", ".join(dict.fromkeys(own_system for own_system in own if own_system is not None))
        raise InputError("--system", f"{system}: neither target belongs to it; valid: {valid}")
    if revision is None:
        of_targets = zip(own, defaults, strict=True)
        revision = next(
            (
                default
                for own_system, default in of_targets
                if default and own_system == meant_system
            ),
            None,
        )
    with option("--revision"):
        meant = resolve_revision(meant_system, revision)
        if any(spec.is_plain_model for spec in specs):
            make_model(meant_system, meant, {})
    sides = tuple(
        (meant_system, meant)
        if own_system in (None, meant_system)
        else (own_system, resolve_revision(own_system, default))
        for own_system, default in zip(own, defaults, strict=True)
    )
    fixed: dict[str, Any] = {}
    for other, other_revision in sides:
        if other != meant_system:
            fixed |= fixed_for(meant_system, meant, other, other_revision)
    return Setting(
        meant_system, meant, sides, fixed | read_changes(meant_system, meant, changes, fixed)
    )


def setting_of_baseline(spec: TargetSpec, system: str, revision: str) -> Setting:
    """Return the setting for comparing a target with a baseline."""
    own = spec.own_system
    if own in (None, system):
        return Setting(system, revision, ((system, revision),), {})
    with option(PATHS[0]):
        other = resolve_revision(own, spec.default_revision())
    fixed_for(system, revision, own, other)
    return Setting(system, revision, ((own, other),), {})


def translation_line(name: str, setting: Setting, system: str, revision: str) -> str:
    """Return a line that says how the configuration is translated for another system."""
    usual = full_config(setting.system, setting.revision, {}) | dict(setting.fixed)
    given = translated(usual, setting.system, setting.revision, system, revision)
    common = usual.keys() & given.keys()
    own = [f"{key} {json.dumps(value)}" for key, value in given.items() if key not in common]
    left_out = [key for key in usual if key not in given]
    parts = [f"{name} gets the configuration translated to {system}"]
    parts += [f"with {', '.join(own)}"] if own else []
    parts += [f"without {', '.join(left_out)}"] if left_out else []
    return ", ".join(parts)
