"""Set up vLLM to run without a network, weights or an accelerator. Every target that imports
vLLM needs this."""

import gc
import importlib
import importlib.metadata
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODEL = str(Path(__file__).with_name("tinymodel"))


def fix_hash_seed() -> None:
    """Restart the process with a fixed hash seed, unless it already has one.

    Otherwise runs would differ: some releases free blocks in the order of a set of request ids, and
    vLLM draws the root of its block hashes at random.
    """
    if "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextmanager
def imports_kept() -> Iterator[None]:
    """Import modules without garbage collection, which would take a quarter of the time. The
    objects of these modules are never freed, so later collections skip them."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def prepare_environment(plugins: str) -> None:
    """Set the environment variables that vLLM reads when it is first imported. `plugins` names
    the plugins to load."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    os.environ["VLLM_PLUGINS"] = plugins
    # Keep one folder per user: in a new folder, vLLM takes ten seconds longer.
    cache = Path(tempfile.gettempdir(), f"schedproof-vllm-{os.getuid()}")
    os.environ.setdefault("VLLM_CACHE_ROOT", str(cache))
    # Silence vLLM's message that kernels are missing. They are not needed, and the message would be
    # part of every finding.
    importlib.import_module("vllm.logger")  # this import resets the levels of vLLM's loggers
    logging.getLogger("vllm.model_executor").setLevel(logging.CRITICAL)


def engine_config(**options: Any) -> Any:
    """Return vLLM's configuration as its engine would build it, for a model with one layer. This
    takes about 10 ms. If vLLM refuses the options, it raises an exception of any type."""
    return (
        importlib.import_module("vllm.engine.arg_utils")
        .EngineArgs(
            model=MODEL,
            tokenizer=MODEL,
            skip_tokenizer_init=True,
            load_format="dummy",
            dtype="float32",
            enforce_eager=True,
            **options,
        )
        .create_engine_config()
    )


def block_hasher(vllm_config: Any, tokens: int | None = None) -> Any:
    """Return the engine core's function that hashes the tokens of a request, or None without a
    prefix cache. A hash covers `tokens` tokens, by default those of a block."""
    cache = vllm_config.cache_config
    if not cache.enable_prefix_caching:
        return None
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    hashing = importlib.import_module("vllm.utils.hashing")
    function = hashing.get_hash_fn_by_name(cache.prefix_caching_hash_algo)
    utils.init_none_hash(function)
    # Since 0.33, a hash may also cover tokens that follow its block.
    beyond = getattr(vllm_config, "num_hash_lookahead_tokens", 0)
    size = tokens or cache.block_size
    return utils.get_request_block_hasher(size, function, *([beyond] if beyond else []))


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "checkout"
