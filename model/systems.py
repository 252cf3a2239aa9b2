"""The systems that have a model, by the name that scenarios use."""

from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import InputError
from .spyre.config import REVISIONS as SPYRE_REVISIONS
from .spyre.config import read_config as read_spyre_config
from .spyre.model import SpyreModel
from .spyre.model import make_model as make_spyre_model

REVISIONS = {"spyre": SPYRE_REVISIONS}
READ_CONFIG = {"spyre": read_spyre_config}
MAKE_MODEL = {"spyre": make_spyre_model}


def check_system(system: str) -> None:
    """Raise InputError unless `system` is known."""
    if system not in REVISIONS:
        raise InputError(
            "$.system", f"{system!r:.60} is not a system; valid: {', '.join(REVISIONS)}"
        )


def resolve_revision(system: str, revision: str | None) -> str:
    """The revision meant: the system's first where none is given.

    Raises:
        InputError: an unknown system or revision.
    """
    check_system(system)
    if revision is None:
        return REVISIONS[system][0]
    if revision not in REVISIONS[system]:
        valid = ", ".join(REVISIONS[system])
        problem = f"{revision!r:.60} is not a revision of {system}; valid: {valid}"
        raise InputError("$.revision", problem)
    return revision


def full_config(system: str, revision: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every key of the system's configuration, those left out at their defaults.

    Raises:
        InputError: an unknown system, revision or key, or an impossible value.
    """
    resolve_revision(system, revision)
    read: dict[str, Any] = msgspec.to_builtins(READ_CONFIG[system](values, revision))
    return read


def make_model(system: str, revision: str, config: Mapping[str, Any]) -> SpyreModel:
    """The reference model of a system's revision.

    Raises:
        InputError: an unknown system, revision or key, an impossible value, or no such model.
    """
    resolve_revision(system, revision)
    return MAKE_MODEL[system](revision, config)
