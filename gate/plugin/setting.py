"""What the options of the plugin say, checked."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.systems import check_system, resolve_revision
from ...properties.rules import applies
from ...spec.catalogue import CatalogueError, Rule, load
from ..deviations import Deviations, read_deviations
from ..options import option
from ..profiles import PROFILES
from ..published import ReleaseError
from ..report import one_line
from ..scenario_file import FileError
from ..targets.opening import UnknownTargetError, default_revision, default_system

CORPUS = "schedproof-corpus"
BAD_INPUT = (InputError, FileError, CatalogueError, UnknownTargetError, ReleaseError, ConfigRefused)


class Setting(NamedTuple):
    """One gate, as the user's configuration file asks for it."""

    target: str
    system: str
    revision: str
    profile: str
    seed: int
    corpus: Path
    deviations: Deviations
    rules: Sequence[Rule]


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
    system = given["system"] or default_system(given["target"])
    with option("schedproof_system"):
        check_system(system)
    named = given["revision"] or default_revision(given["target"])
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
    rules = [rule for rule in catalogue if applies(rule, revision) and rule.checked]
    return Setting(
        *(given["target"], system, revision, profile, int(seed), corpus, deviations, rules)
    )
