"""Schedulers that are on no package index: run from a checkout that the user names."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from ...model.errors import InputError
from .checkout_metadata import read_project
from .supported_releases import VLLM_OF, Release


@dataclass(frozen=True)
class Checkout:
    """A scheduler in a checkout.

    Attributes:
        system: what it is a scheduler of.
        script: the target, under `gate/targets`.
        variable: where the checkout is, if the command line does not say.
        needs: files that every supported checkout has.
        newer: a file, and words in it that older code has not.
        revisions: what newer code is compared with, and older code, None if no target drives it.
        supported: the supported code, in words.
        release: whose releases it is a next one of, and in whose environment it runs; "" where it
            needs none.
    """

    system: str
    script: str
    variable: str
    needs: tuple[str, ...]
    newer: tuple[str, str]
    revisions: tuple[str, str | None]
    supported: str
    release: str = ""


CHECKOUTS: Mapping[str, Checkout] = {
    "nano-vllm": Checkout(
        "nano_vllm",
        "nano_target.py",
        "SCHEDPROOF_NANO_VLLM",
        ("nanovllm/engine/scheduler.py", "nanovllm/engine/block_manager.py", "pyproject.toml"),
        ("nanovllm/engine/block_manager.py", "def hash_blocks"),
        ("0.2.0", "documented"),
        "any version",
    ),
    "llmservingsim": Checkout(
        "llmservingsim",
        "llmservingsim_target.py",
        "SCHEDPROOF_LLMSERVINGSIM",
        ("serving/core/scheduler.py", "serving/core/memory_model.py"),
        ("serving/core/scheduler.py", "def _schedule_running"),
        ("head", None),
        "the scheduler over a block pool, after v1.1.0",
    ),
    "vllm": Checkout(
        "vllm",
        "vllm_target.py",
        "SCHEDPROOF_VLLM",
        ("vllm/v1/core/sched/scheduler.py",),
        ("vllm/v1/core/sched/scheduler.py", "class Scheduler"),
        ("documented", None),
        "vLLM 0.18.0 or later",
        "vllm",
    ),
    "sendnn-inference": Checkout(
        "spyre",
        "sendnn.py",
        "SCHEDPROOF_SENDNN_INFERENCE",
        ("sendnn_inference/v1/core/scheduler.py", "pyproject.toml"),
        ("sendnn_inference/v1/core/scheduler.py", "class ChunkedPrefillSpyreScheduler"),
        ("2.5.2", None),
        "sendnn-inference 2.0.0 or later",
        "sendnn-inference",
    ),
}


def named(spec: str) -> tuple[Checkout, str] | None:
    """The scheduler that NAME or NAME:DIR names, and the folder; None if it is none of these."""
    name, _, folder = spec.partition(":")
    return (CHECKOUTS[name], folder) if name in CHECKOUTS else None


def with_path(spec: str, path: Path | None) -> str:
    """What `--path` adds to the word that names a target: NAME:DIR.

    Raises:
        InputError: the target has no checkout.
    """
    if path is None:
        return spec
    if spec not in CHECKOUTS:
        if named(spec) is not None:
            raise InputError("--path", f"{path}: {spec} names a folder already")
        raise InputError("--path", f"{path}: only for {', '.join(CHECKOUTS)}, not for {spec}")
    return f"{spec}:{path}"


def folder_of(one: Checkout, folder: str) -> Path:
    """Where the checkout is: what the command line says, or the environment.

    Raises:
        InputError: no folder is named, or it holds no such checkout.
    """
    where, path = "--path", folder or os.environ.get(one.variable, "")
    if not path:
        raise InputError(where, f"missing; valid: the folder of a checkout, or ${one.variable}")
    if not folder:
        where = f"${one.variable}"
    if not Path(path).is_dir():
        raise InputError(where, f"{path}: no such folder; valid: a checkout of {one.system}")
    for file in one.needs:
        if not (Path(path) / file).is_file():
            raise InputError(where, f"{path} has no {file}; valid: a checkout of {one.system}")
    return Path(path).absolute()


def revision_of(one: Checkout, folder: str) -> str:
    """What the code in the checkout is compared with.

    Raises:
        InputError: there is no checkout, or one whose code no target drives.
    """
    path = folder_of(one, folder)
    file, words = one.newer
    code = (path / file).read_text(encoding="utf-8", errors="replace")
    newer, older = one.revisions
    if words in code:
        return newer
    if older is None:
        problem = f"{path} is of a version that is not supported; valid: {one.supported}"
        raise InputError("--path", problem)
    return older


def command_of(one: Checkout, folder: str) -> tuple[list[str], dict[str, str]]:
    """How the target is started: a command, and its environment.

    Raises:
        InputError: there is no checkout.
    """
    script = Path(__file__).with_name(one.script)
    env = {**os.environ, one.variable: str(folder_of(one, folder)), "PYTHONHASHSEED": "0"}
    return [sys.executable, str(script)], env


def release_of(one: Checkout, folder: str) -> Release:
    """The next release that is in the checkout.

    Raises:
        InputError: there is no checkout, or it needs a version of vLLM that is none of ours.
    """
    path = folder_of(one, folder)
    vllm = "checkout" if one.release == "vllm" else _vllm_for(path / "pyproject.toml")
    return Release(one.release, "checkout", vllm, path)


def _vllm_for(file: Path) -> str:
    """The latest examined version of vLLM that the project takes."""
    try:
        asked = [Requirement(text) for text in read_project(file).get("dependencies", ())]
    except (InvalidRequirement, TypeError) as error:
        problem = str(error).partition("\n")[0]
        raise InputError("--path", f"{file}: $.project.dependencies: {problem}") from None
    tried = list(VLLM_OF["vllm"])
    for version in reversed(tried):
        if all(one.specifier.contains(version) for one in asked if one.name == "vllm"):
            return version
    needed = ", ".join(str(one) for one in asked if one.name == "vllm")
    raise InputError("--path", f"{file}: needs {needed}; valid: one of {', '.join(tried)}")
