"""Import the Spyre release on the path, and configure it."""

import functools
import importlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import scheduler_class
from ..overrides import Override, overrides
from ..protocol_checks import RefusedError
from ..release_adapter import StartUp, checked_start
from ..vllm import start_up
from ..vllm.offline import engine_config, imports_kept, prepare_environment, version_of

# For each import name: the name on the package index, and the prefix of environment variables.
PACKAGES = {
    "sendnn_inference": ("sendnn-inference", "SENDNN_INFERENCE_"),
    "vllm_spyre": ("vllm-spyre", "VLLM_SPYRE_"),
}
INTERLEAVE = "CP_INTERLEAVE_STEPS"
PADDING_BLOCK = 1  # block 0 of the pool is padding and belongs to no request


@dataclass(frozen=True)
class Release:
    """An installed release: its name and version, and the parts that the target drives."""

    name: str
    version: str
    prefix: str
    envs: Any
    platform: Any
    scheduler_class: Any
    overrides: Sequence[Override]
    runner_class: Any
    defaults: dict[str, Any]

    def has_option(self, option: str) -> bool:
        """Return whether the release reads this environment variable. `option` is its name
        without the prefix."""
        return self.prefix + option in self.envs.environment_variables


@functools.cache
@imports_kept()
def load_release() -> Release:
    package = next((p for p in PACKAGES if importlib.util.find_spec(p)), None)
    if package is None or importlib.util.find_spec("vllm") is None:
        raise RefusedError(
            "no Spyre release on the path: put an unpacked vllm and an unpacked sendnn-inference "
            "or vllm-spyre on PYTHONPATH"
        )
    name, prefix = PACKAGES[package]
    os.environ.pop(prefix + INTERLEAVE, None)  # unset, so that the release's own default is read
    _prepare_environment(prefix)
    # On first use, vLLM chooses its platform and imports the plugin. Import vLLM before the plugin,
    # because otherwise releases such as 2.4.0 fail with a circular import.
    importlib.import_module("vllm.engine.arg_utils")
    # Tensors are tiny, so threads would only cost time.
    importlib.import_module("torch").set_num_threads(1)
    platform = importlib.import_module(f"{package}.platform").SpyrePlatform
    platform.log_server_boot = lambda _config: None  # suppress the logo that each start prints
    _make_starts_cheap()
    envs = importlib.import_module(f"{package}.envs")
    interleaves = envs.environment_variables.get(prefix + INTERLEAVE)
    own = importlib.import_module(f"{package}.v1.core.scheduler").ChunkedPrefillSpyreScheduler
    chosen = scheduler_class.chosen_class(own)
    return Release(
        name=name,
        version=version_of(name),
        prefix=prefix,
        envs=envs,
        platform=platform,
        scheduler_class=chosen,
        overrides=overrides(chosen, scheduler_class.own_class(chosen, own)),
        runner_class=importlib.import_module(
            f"{package}.v1.worker.spyre_model_runner"
        ).ChunkedPrefillModelRunner,
        defaults={"interleave": bool(interleaves())} if interleaves else {},
    )


def _make_starts_cheap() -> None:
    """Let vLLM search for plugins only once. Each search would open the metadata of every
    package, which takes 10 ms."""
    processors: Any = importlib.import_module("vllm.v1.sample.logits_processor")
    processors._load_logitsprocs_plugins = functools.cache(processors._load_logitsprocs_plugins)


def _prepare_environment(prefix: str) -> None:
    prepare_environment(plugins="sendnn_inference,spyre")
    os.environ[prefix + "DYNAMO_BACKEND"] = "eager"
    # vllm-spyre 1.x chooses its scheduler by these variables; later releases ignore them.
    os.environ["VLLM_SPYRE_USE_CB"] = "1"
    os.environ["VLLM_SPYRE_USE_CHUNKED_PREFILL"] = "1"


def _apply_options(release: Release, config: dict[str, Any]) -> None:
    options = {
        INTERLEAVE: config["interleave"],
        "PAUSING_ENABLED": config["pausing"],
        "LONG_OUT_PRIO": config["long_output_priority"],
    }
    for option, value in options.items():
        if release.has_option(option):
            os.environ[release.prefix + option] = str(int(value))
    os.environ["VLLM_DT_MAX_BATCH_TKV_LIMIT"] = str(config["max_batch_tkv"])
    # The platform sets this variable itself; 1.x would treat an existing value as an override.
    os.environ.pop("VLLM_DT_CHUNK_LEN", None)
    release.envs.clear_env_cache()
    if hasattr(release.platform, "_max_batch_tkv_limit"):
        release.platform._max_batch_tkv_limit = 0  # "not read yet"


@functools.lru_cache(maxsize=64)
def _engine_config(
    max_model_len: int,
    max_num_seqs: int,
    chunk_size: int,
    prefix_caching: bool,
    num_blocks: int | None,
) -> Any:
    return engine_config(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=chunk_size,
        enable_prefix_caching=prefix_caching,
        num_gpu_blocks_override=num_blocks,
    )


def check_start(release: Release, config: dict[str, Any]) -> StartUp:
    base = f"vllm {version_of('vllm')}"

    def check() -> None:
        if config["num_blocks"] is None:
            return  # the release chooses the size of the pool
        blocks = config["num_blocks"] + PADDING_BLOCK
        vllm_config = configure(release, config, blocks)
        refusal = start_up.refusal(vllm_config, [start_up.attention(config["block_size"])])
        if refusal is not None:
            raise _too_few(config, f"{base} does not start ({start_up.CHECK}: {refusal})")
        total = getattr(release.platform, "get_total_spyre_blocks", None)
        if total is not None:
            try:
                total(vllm_config)  # `complete_warmup` of the model runner does the same
            except ValueError as error:
                why = f"{release.name} {release.version} does not start (warm-up: {error})"
                raise _too_few(config, why) from error

    checks = f"{release.name} {release.version} check_and_update_config"
    if config["num_blocks"] is not None:
        checks += f", get_total_spyre_blocks, and {base} {start_up.CHECK}"
    return checked_start(checks, check)


def _too_few(config: dict[str, Any], why: str) -> RefusedError:
    return RefusedError(f"$.config.num_blocks is {config['num_blocks']}; {why}")


def configure(release: Release, config: dict[str, Any], num_blocks: int | None = None) -> Any:
    """Apply a configuration to this process, and return it as a vLLM configuration.

    `num_blocks` is the size of the server's pool; None lets the platform choose it.
    """
    _apply_options(release, config)
    try:
        vllm_config = _engine_config(
            config["max_model_len"],
            config["max_num_seqs"],
            config["chunk_size"],
            config["prefix_caching"],
            num_blocks,
        )
        # The platform remembers the last configuration, so set it even if `vllm_config` was cached.
        release.platform.check_and_update_config(vllm_config)
    except (ValueError, AssertionError) as error:
        message = f"{release.name} {release.version} refuses the configuration: {error}"
        raise RefusedError(message) from error
    return vllm_config
