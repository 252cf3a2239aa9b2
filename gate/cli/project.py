"""Read `[tool.schedproof]` as defaults for the options of each command."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ...model.errors import InputError
from ...spec.catalogue import load
from ...spec.systems import first_system
from ..files.project_file import Project, read_project
from ..judging.profiles import PROFILES
from ..judging.rule_choice import excluded, rules_named
from ..targets.supported_releases import ReleaseError, packages
from ..targets.target_spec import TargetSpec, UnknownTargetError, parse_target

RULES_OF = ("target", "system", "revision")
# For each command, the keys that give defaults to its options; the command line takes precedence.
KEYS = {
    "gate": (*RULES_OF, "profile", "corpus", "deviations", "exclude", "extra_rules"),
    "doctor": RULES_OF,
    "replay": ("target", "system", "exclude", "extra_rules"),
    "show": ("target", "system", "exclude", "extra_rules"),
    "step": RULES_OF,
    "diff": ("system", "revision"),
    "explore": ("system", "revision"),
    "rules": ("system",),
}
CORPUS_KEYS = {
    **dict.fromkeys(("add", "run", "prune", "verify"), ("target", "corpus")),
    "minimize": ("target",),
    "list": ("corpus",),
    "export": ("corpus", "target"),
}


def defaults() -> dict[str, Any]:
    """Return the defaults that the folder's pyproject.toml sets, by command and option."""
    project = read_project()
    if project.profile is not None and project.profile not in PROFILES:
        valid = ", ".join(PROFILES)
        raise InputError(
            "pyproject.toml: tool.schedproof.profile", f"{project.profile!r}; valid: {valid}"
        )
    commands: dict[str, Any] = {name: _given(project, keys) for name, keys in KEYS.items()}
    return commands | {
        "corpus": {name: _given(project, keys) for name, keys in CORPUS_KEYS.items()}
    }


def with_its_target(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """Return the option's value, or None if it comes from the project file, which is about another
    target.

    A release or checkout that the command line names has its own system, revision and rules.
    """
    name = str(option.name)
    target = context.params.get("target", context.params.get("target_a"))
    if target is None or from_project(context, "target") or not from_project(context, name):
        return value
    system = _own_system(str(target))
    if system is None or (name != "revision" and system == _system(context)):
        return value
    return None


def named_target(
    context: typer.Context,
    text: str,
    path: Path | None = None,
    scheduler_cls: str | None = None,
    beyond_start_up: bool = False,
) -> TargetSpec:
    """Return the target of a command line.

    If the project file names another target, set `beside_another`, so that the replay commands that
    are printed name this one.
    """
    try:
        spec = parse_target(text, path, scheduler_cls)
    except (UnknownTargetError, ReleaseError) as error:
        if not from_project(context, "target"):
            raise
        raise UnknownTargetError(f"pyproject.toml: tool.schedproof.target: {error}") from None
    if beyond_start_up and not spec.has_start_up:
        valid = f"a release or a checkout of {', '.join(packages())}"
        raise InputError("--beyond-start-up", f"{text} has no start-up checks; valid with {valid}")
    other = (context.default_map or {}).get("target", text) != text
    return replace(spec, beside_another=other, beyond_start_up=beyond_start_up)


def left_out(
    context: typer.Context, exclude: Sequence[str] | None, rule: Sequence[str] | None, system: str
) -> Sequence[str]:
    """Return the rules to exclude. The exclusions of the project file apply only to its own system,
    and never to rules that the command line names."""
    if meant_for_another(context, "exclude", system):
        return ()
    if not (exclude and from_project(context, "exclude")):
        return exclude or ()
    catalogue = load(system)
    named = rules_named(catalogue, rule) if rule else {}
    return [rule_id for rule_id in excluded(catalogue, exclude) if not named.get(rule_id)]


def meant_for_another(context: typer.Context, name: str, system: str) -> bool:
    return from_project(context, name) and system != (_system(context) or first_system())


def from_project(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def is_unset(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT"


def _given(project: Project, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in project.given.items() if key in keys}


def _system(context: typer.Context) -> str | None:
    defaults = context.default_map or {}
    named: str | None = defaults.get("system")
    return named or _own_system(defaults.get("target", ""))


def _own_system(target: str) -> str | None:
    try:
        return parse_target(target).own_system
    except (InputError, ReleaseError, UnknownTargetError):
        return None  # whoever reads the file reports what is wrong with it
