"""Run a user's scheduler class in place of the release's own.

The class is given as FILE.py:CLASS or DIR:PACKAGE.MODULE.CLASS. Python searches DIR for the package
after the release's own packages.

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

# Environment variables of the target's process. One names the user's class. The other is set to run
# the release's class, from which the user's class is derived, instead.
VARIABLE = "SCHEDPROOF_SCHEDULER"
OWN_CLASS = "SCHEDPROOF_OWN_CLASS"


def load_early(load: Callable[[], object]) -> None:
    """Load the release and the user's class before the first request. Otherwise, an error in the
    class would look like a refusal of `start`. Output of the class's module goes to stderr."""
    if is_chosen():
        with contextlib.redirect_stdout(sys.stderr):
            load()


def is_chosen() -> bool:
    return VARIABLE in os.environ


@functools.cache
def chosen_class(own: type) -> Any:
    """Return the class to run: the user's class if there is one, otherwise the release's."""
    words = os.environ.get(VARIABLE)
    if words is None:
        return own
    place, _, path = words.rpartition(":")
    module_name, _, name = path.rpartition(".")
    try:
        module = _from_package(place, module_name) if module_name else _from_file(place)
    except (Exception, SystemExit) as error:
        raise _complaint(f"cannot import it ({type(error).__name__}: {error})") from None
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        raise _complaint(f"it has no class {name!r}")
    if not issubclass(cls, own):
        raise _complaint(f"{name} is not derived from {own.__name__}; valid: a class that is")
    return own_class(cls, own) if OWN_CLASS in os.environ else cls


def own_class(cls: type, own: type) -> type:
    package = own.__module__.partition(".")[0]
    return next(base for base in cls.__mro__ if base.__module__.partition(".")[0] == package)


def _from_package(folder: str, name: str) -> ModuleType:
    # At the end of the path, so that no file in the folder hides a module of the release.
    sys.path.append(folder)
    package = name.rpartition(".")[0]
    coverage.count_packages(package if "." in package else name)
    return importlib.import_module(name)


def _from_file(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None, file  # always true, since the name ends with .py
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(coverage.counted(spec))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def title(name: str, version: str) -> tuple[str, str]:
    """Return the name and the version to report. They mention the user's class if there is one."""
    words = os.environ.get(VARIABLE)
    if words is None or OWN_CLASS in os.environ:
        return name, version
    return words.rpartition(":")[2].rpartition(".")[2], f"{name} {version}"


def _complaint(problem: str) -> SystemExit:
    place, _, path = os.environ[VARIABLE].rpartition(":")
    words = path if "." in path else place
    return SystemExit(f"schedproof: TARGET {words}: {' '.join(problem.split())}")
