"""A scheduler class of the user's in the place of the release's own: FILE.py:CLASS, or
DIR:PACKAGE.MODULE.CLASS, which is looked for in DIR after what the release has.

Standard library only: this file runs inside the environment of a release under test.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from . import coverage

# In the environment of the target's process: the class, and that the one of the release from which
# it is derived is driven instead of it.
VARIABLE = "SCHEDPROOF_SCHEDULER"
OWN_CLASS = "SCHEDPROOF_OWN_CLASS"


def say_at_once(load: Callable[[], object]) -> None:
    """Load the release, and with it the class, before anything is asked: what is wrong with the
    class is no answer to a `start`. What its module prints goes to stderr.

    Raises:
        SystemExit: there is no such class, or it is no scheduler of this release.
    """
    if is_chosen():
        with contextlib.redirect_stdout(sys.stderr):
            load()


def is_chosen() -> bool:
    """The user has named a class: it, or the one from which it is derived, is driven as it is."""
    return VARIABLE in os.environ


@functools.cache
def chosen(own: type) -> Any:
    """The class that is driven: the user's, where one is named, in the place of the release's.

    Raises:
        SystemExit: as `say_at_once`.
    """
    words = os.environ.get(VARIABLE)
    if words is None:
        return own
    place, _, path = words.rpartition(":")
    module_name, _, name = path.rpartition(".")
    try:
        module = _from_package(place, module_name) if module_name else _from_file(place)
    except (Exception, SystemExit) as error:
        raise _complaint(f"cannot import it ({type(error).__name__}: {error})") from None
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise _complaint(f"it has no class {name!r}")
    if not issubclass(found, own):
        raise _complaint(f"{name} is no {own.__name__}; valid: a class derived from it")
    return own_class(found, own) if OWN_CLASS in os.environ else found


def own_class(found: type, own: type) -> type:
    """The nearest class of the package of `own` from which `found` is derived."""
    package = own.__module__.partition(".")[0]
    return next(base for base in found.__mro__ if base.__module__.partition(".")[0] == package)


def _from_package(folder: str, name: str) -> ModuleType:
    sys.path.append(folder)  # last, so that no file beside the package hides one of the release
    package = name.rpartition(".")[0]
    coverage.count_packages(package if "." in package else name)
    return importlib.import_module(name)


def _from_file(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None, file  # it ends with .py
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(coverage.counted(spec))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def title(name: str, version: str) -> tuple[str, str]:
    """Name and version that a target gives: of the user's class, where there is one."""
    words = os.environ.get(VARIABLE)
    if words is None or OWN_CLASS in os.environ:
        return name, version
    return words.rpartition(":")[2].rpartition(".")[2], f"{name} {version}"


def _complaint(problem: str) -> SystemExit:
    place, _, path = os.environ[VARIABLE].rpartition(":")
    words = path if "." in path else place
    return SystemExit(f"schedproof: TARGET {words}: {' '.join(problem.split())}")
