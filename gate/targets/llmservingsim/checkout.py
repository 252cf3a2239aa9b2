"""Load a checkout of LLMServingSim: its scheduler, its memory and its command-line defaults."""

import argparse
import ast
import functools
import importlib
import importlib.util
import inspect
import logging
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..protocol_checks import RefusedError
from .main_loop import DECODE

MODEL = "meta-llama/Llama-3.1-8B"  # a model in the checkout's configs/model
GIB = 1024**3
BITS = 16  # bits per number in memory
NPU = 0  # the number of the only accelerator, which starts and ends every batch
# Enough GiB for the model, and a block size; used to measure how much memory the model needs.
PROBE = (17, 16)
PACKAGES = ("serving.core", "inference_serving")  # possible names, the newer one first
MAINS = ("serving/__main__.py", "main.py")  # the simulator's entry point, the newer one first
# Only the trace generator needs these modules, to read tables and fit curves. Only profiling the
# simulator needs the last one.
NOT_NEEDED = ("pandas", "sklearn", "joblib", "pyinstrument")


class Checkout(NamedTuple):
    """The scheduler of a checkout, and how much memory it needs.

    `token` is the size of one token's KV cache, in bytes. `has_pool` says whether the code has a
    pool of numbered blocks. `has_router` says whether requests reach the scheduler through a
    router. `defaults` maps configuration keys to the defaults of the command line.
    """

    version: str
    scheduler: Any
    token: int
    has_pool: bool
    defaults: Mapping[str, Any] = types.MappingProxyType({})
    has_router: bool = False

    def weight_of(self, stages: int) -> int:
        """Return the size, in bytes, of the part of the model that one stage holds."""
        return int(_memory(self.scheduler, stages).weight)


def package_in(folder: str) -> str:
    for package in PACKAGES:
        if Path(folder, *package.split("."), "scheduler.py").is_file():
            return package
    raise RefusedError(f"{folder} is not a checkout of LLMServingSim")


def load(folder: str, keys: Iterable[str] = ()) -> Checkout:
    """Return the scheduler of the checkout in a folder; raise RefusedError if there is none."""
    package = package_in(folder)
    sys.path.insert(0, folder)
    for name in NOT_NEEDED:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].Profiler = None  # type: ignore[attr-defined]
    try:
        scheduler = importlib.import_module(f"{package}.scheduler").Scheduler
    except ImportError as error:
        raise RefusedError(f"{folder} cannot be imported: {error}") from error
    logging.getLogger("llmservingsim").setLevel(logging.CRITICAL)
    has_pool = hasattr(scheduler, "_schedule_running")
    token = _memory(scheduler, 1).get_kv(1)
    defaults = command_line_defaults(Path(folder), keys)
    has_router = Path(folder, MAINS[0]).is_file()
    return Checkout(version_of(Path(folder)), scheduler, token, has_pool, defaults, has_router)


def command_line_defaults(folder: Path, keys: Iterable[str]) -> dict[str, Any]:
    """Return the defaults of the simulator's command line, by configuration key.

    The checkout defines its options inside `main`, which also starts the simulator. So run only the
    calls inside `main` that add an option.
    """
    source = next((folder / name for name in MAINS if (folder / name).is_file()), None)
    if source is None:
        return {}
    parser = argparse.ArgumentParser()
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument":
            call = ast.Expression(ast.fix_missing_locations(node))
            eval(compile(call, str(source), "eval"), {"parser": parser, "argparse": argparse})
    values = vars(parser.parse_args([]))
    named = {key: values.get(key, values.get(OLD_NAMES.get(key, key))) for key in keys}
    return {key: value for key, value in named.items() if value is not None}


@functools.cache
def _memory(scheduler: Any, stages: int) -> Any:
    gib, block = PROBE
    return build(scheduler, gib, {**SMALLEST, "block_size": block}, stages).memory


SMALLEST = {
    **{"max_num_seqs": 1, "max_num_batched_tokens": 1, "long_prefill_token_threshold": 0},
    **{"enable_chunked_prefill": True, "enable_prefix_caching": False},
    "prioritize_prefill": False,
}


OPTIONS = (
    *("max_num_batched_tokens", "block_size", "enable_prefix_caching", "prioritize_prefill"),
    *("enable_chunked_prefill", "long_prefill_token_threshold"),
)
# The parameter's name in release 1.0.0. All other parameters have kept their names.
OLD_NAMES = {"max_num_seqs": "max_batch", "num_npus": "npu_num", "pp_size": "npu_group"}


def build(
    scheduler: Any,
    gib: float,
    config: Mapping[str, Any],
    stages: int = 1,
    host: float = 0,
    kind: str | None = None,
) -> Any:
    """Return a scheduler for one accelerator with `gib` GiB and a host with `host` GiB of
    memory. `kind` is "prefill" or "decode" if there are two instances, else None."""
    known = inspect.signature(scheduler).parameters
    values = {
        **{"model": MODEL, "node_id": 0, "instance_id": 0, "num_npus": 1, "tp_size": 1},
        **{"pp_size": stages, "npu_mem": gib, "cpu_mem": host, "pd_type": kind},
        "start_npu": DECODE if kind == "decode" else NPU,
        **{"fp": BITS, "req_num": 1, "enable_prefix_sharing": False},
        **{"prefix_pool": None, "prefix_storage": None},
        **{key: config[key] for key in OPTIONS if key in known},
        # As on the simulator's command line, 0 means no limit.
        "max_num_seqs": config["max_num_seqs"] or float("inf"),
    }
    named = {key if key in known else OLD_NAMES.get(key, key): values[key] for key in values}
    return scheduler(**{key: value for key, value in named.items() if key in known})


def version_of(place: Path) -> str:
    """Return the newest release in the checkout's changelog, with a note if the code is newer."""
    changes = place / "CHANGELOG.md"
    lines = changes.read_text("utf-8").splitlines() if changes.is_file() else []
    titles = [line.partition("[")[2].partition("]")[0] for line in lines if line[:4] == "## ["]
    releases = [title.removeprefix("v") for title in titles if title != "Unreleased"]
    if not releases:
        return "unknown"
    return f"after {releases[0]}" if "Unreleased" in titles[:1] else releases[0]
