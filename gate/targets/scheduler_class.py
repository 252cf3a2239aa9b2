"""A scheduler class of the user's in the place of the release's own: FILE:CLASS.

Standard library only: this file runs inside the environment of a release under test.
"""

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "SCHEDPROOF_SCHEDULER"  # in the environment of the target's process


def say_at_once(load: Callable[[], object]) -> None:
    """Load the release, and with it the class, before anything is asked: what is wrong with the
    class is no answer to a `start`. What its module prints goes to stderr.

    Raises:
        SystemExit: there is no such class, or it is no scheduler of this release.
    """
    if VARIABLE in os.environ:
        with contextlib.redirect_stdout(sys.stderr):
            load()


@functools.cache
def chosen(own: type) -> Any:
    """The class that is driven: the user's, where one is named, in the place of the release's.

    Raises:
        SystemExit: as `say_at_once`.
    """
    words = os.environ.get(VARIABLE)
    if words is None:
        return own
    file, _, name = words.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None, file  # it ends with .py
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _complaint(f"cannot import it ({type(error).__name__}: {error})") from None
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise _complaint(f"it has no class {name!r}")
    if not issubclass(found, own):
        raise _complaint(f"{name} is no {own.__name__}; valid: a class derived from it")
    return found


def title(name: str, version: str) -> tuple[str, str]:
    """Name and version that a target gives: of the user's class, where there is one."""
    words = os.environ.get(VARIABLE)
    return (name, version) if words is None else (words.rpartition(":")[2], f"{name} {version}")


def _complaint(problem: str) -> SystemExit:
    file = os.environ[VARIABLE].rpartition(":")[0]
    return SystemExit(f"schedproof: TARGET {file}: {' '.join(problem.split())}")
