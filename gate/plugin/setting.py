"""What the options of the plugin say, checked."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.systems import check_system, resolve_revision
from ...properties.rules.registry import applies
from ...spec.catalogue import CatalogueError, Rule, load
from ..console.option_checks import option
from ..console.output import one_line
from ..files.project_file import read_project
from ..files.scenario_file import FileError
from ..judging.deviations import Deviations, read_deviations
from ..judging.profiles import PROFILES
from ..judging.rule_choice import excluded
from ..targets.supported_releases import ReleaseError
from ..targets.target_spec import TargetSpec, UnknownTargetError, parse_target

CORPUS = "schedproof-corpus"
BAD_INPUT = (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError, ConfigRefused)


class Setting(NamedTuple):
    """One gate, as the user's configuration file asks for it."""

    target: TargetSpec
    system: str
    revision: str
    profile: str
    seed: int
    corpus: Path
    deviations: Deviations
    rules: Sequence[Rule]
    excluded: Mapping[str, str]


def read_setting(root: Path, given: Mapping[str, str]) -> Setting:
    """The options by name, "" where one is not given; paths are seen from `root`.

    Raises:
        pytest.UsageError: one of them means nothing.
    """
    try:
        return _read(root, given)
    except BAD_INPUT as error:
        raise pytest.UsageError(f"schedproof: {one_line(str(error))}") from None


def _read(root: Path, given: Mapping[str, str]) -> Setting:
    given = _with_those_of_the_project(root, given)
    spec = parse_target(given["target"])
    system = given["system"] or spec.default_system
    with option("schedproof_system"):
        check_system(system)
    named = given["revision"] or spec.default_revision()
    with option("schedproof_revision"):
        revision = resolve_revision(system, named)
    profile = given["profile"] or "quick"
    if profile not in PROFILES:
        raise InputError("schedproof_profile", f"{profile!r}; valid: {', '.join(PROFILES)}")
    seed = given["seed"] or "0"
    if not (seed.isascii() and seed.isdigit() and len(seed) < 20):
        raise InputError("schedproof_seed", f"{seed!r}; valid: a number from 0 upwards")
    corpus = root / (given["corpus"] or CORPUS)
    if given["corpus"] and not corpus.is_dir():
        raise InputError("schedproof_corpus", f"{corpus} is no folder")
    catalogue = load(system)
    deviations = Deviations()
    if given["deviations"]:
        path = root / given["deviations"]
        deviations = read_deviations(path, system, catalogue, datetime.date.today())
    words = [given["exclude"]] if given["exclude"] else []
    left_out = {**dict.fromkeys(excluded(catalogue, words), "excluded"), **deviations.by_design}
    rules = [rule for rule in catalogue if applies(rule, revision) and rule.checked]
    return Setting(
        *(spec, system, revision, profile, int(seed), corpus, deviations, rules, left_out)
    )


def _with_those_of_the_project(root: Path, given: Mapping[str, str]) -> Mapping[str, str]:
    """What `[tool.schedproof]` says of the target, where pytest's own keys say nothing; not how
    much is searched: tests are run more often than a gate."""
    project = read_project(root).given
    if project.get("target", given["target"]) != given["target"]:
        return given  # of another target
    project["exclude"] = ",".join(project.get("exclude", ()))
    keys = ("system", "revision", "corpus", "deviations", "exclude")
    return {**given, **{key: given[key] or project.get(key, "") for key in keys}}
