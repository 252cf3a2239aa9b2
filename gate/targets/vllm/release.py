"""Import the vLLM release on the path, and configure it."""

import functools
import importlib
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import scheduler_class
from ..overrides import Override, overrides
from ..protocol_checks import RefusedError, refuse
from ..release_adapter import StartUp, checked_start
from . import cache_events, grammars, groups, model_runner, sessions, start_up
from .drafts import KEYS as DRAFT_KEYS
from .drafts import Ranges, drafter, speculative_config
from .encoder import KEYS as ENCODER_KEYS
from .encoder import check_derived
from .in_flight import RUNNER
from .loads import IN_STEP
from .offline import engine_config, imports_kept, prepare_environment, version_of

# Keys of the scenario format that vLLM calls by another name.
VLLM_NAMES = {"policy": "scheduling_policy", "reserve_full_isl": "scheduler_reserve_full_isl"}
NULL_BLOCK = 1  # one block of vLLM's pool is never given to a request
# Keys that are not passed to vLLM as options of the same name. vLLM counts the null block as part
# of the pool. It has one option for a drafter and one for a connector, which have two keys each. It
# derives the limits of an encoder, and the groups of the KV cache, from the model.
NOT_OPTIONS = frozenset(
    {
        *("num_blocks", "early_completions", "kv_connector", "kv_load_failure_policy"),
        *("cache_partitions", "reused_ids", IN_STEP, grammars.KEY, sessions.KEY),
        *(*DRAFT_KEYS, *ENCODER_KEYS, groups.KEY, cache_events.KEY, RUNNER),
    }
)
# Options of vLLM's scheduler whose defaults are the same on all hardware.
OPTIONS = (
    *("policy", "watermark", "reserve_full_isl", "enable_chunked_prefill"),
    "long_prefill_token_threshold",
)
# Exceptions that are raised if a release has moved or renamed a part that the adapter uses.
PARTS_MISSING = (AttributeError, TypeError, ImportError, LookupError)
# The values of options that describe a release without the option.
WITHOUT_OPTION = {
    **{"watermark": 0, "reserve_full_isl": False, groups.RETENTION: None},
    **{"max_num_active_seqs": None, "long_prefill_token_threshold_adaptive": False},
    **{"prefill_schedule_interval": 1, groups.UNIT: None},
}


@dataclass(frozen=True)
class Release:
    """An imported release: its version, its options, and the class that the target runs.
    `overrides` lists the release's methods that this class overrides."""

    version: str
    options: frozenset[str]
    scheduler_class: Any
    overrides: Sequence[Override] = ()

    def __str__(self) -> str:
        return f"vllm {self.version}"


@functools.cache
@imports_kept()
def load_release() -> Release:
    if importlib.util.find_spec("vllm") is None:
        raise RefusedError("no vLLM on the path: put an unpacked vllm on PYTHONPATH")
    prepare_environment(plugins="")
    # On first use, vLLM chooses a platform to match the hardware. Choose one before that, so that
    # the same code runs everywhere.
    platforms: Any = importlib.import_module("vllm.platforms")
    platforms._current_platform = _plain_cpu()
    arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs
    own = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    importlib.import_module("torch").set_num_threads(1)
    chosen = scheduler_class.chosen_class(own)
    return Release(
        version_of("vllm"),
        frozenset(arguments.__dataclass_fields__),
        chosen,
        overrides(chosen, scheduler_class.own_class(chosen, own)),
    )


def _plain_cpu() -> Any:
    """Return a CPU platform that leaves a configuration unchanged.

    vLLM's own CPU platform needs kernels, and sets the cache size according to the machine's
    memory.
    """
    interface = importlib.import_module("vllm.platforms.interface")
    body = {
        "_enum": interface.PlatformEnum.OOT,
        "device_name": "cpu",
        "device_type": "cpu",
        "check_and_update_config": classmethod(lambda cls, vllm_config: None),
        "is_pin_memory_available": classmethod(lambda cls: False),
        # as on a GPU, layers with a window form their own group
        "support_hybrid_kv_cache": classmethod(lambda cls: True),
    }
    return type("PlainCpu", (interface.Platform,), body)()


# In tokens. FlashAttention and other kernels accept only multiples of this number as block size
# (get_supported_kernel_block_sizes). Which kernel a server runs depends on its device.
KERNEL_BLOCK = 16


def configure(release: Release, config: Mapping[str, Any]) -> tuple[Any, StartUp]:
    options: dict[str, Any] = {"enable_lora": True} if config.get("max_loras") else {}
    if config["num_blocks"] is not None:
        options["num_gpu_blocks_override"] = config["num_blocks"] + NULL_BLOCK
    for key, value in config.items():
        name = VLLM_NAMES.get(key, key)
        if name in release.options:
            options[name] = value
        elif key not in NOT_OPTIONS and value != WITHOUT_OPTION.get(key):
            without = json.dumps(WITHOUT_OPTION.get(key))
            raise refuse(key, value, f"{without} ({release} has no such option)")
    try:
        loads = bool(config.get("kv_connector"))
        policy = config.get("kv_load_failure_policy", "recompute") if loads else None
        mamba = groups.has_mamba(config)
        events = cache_events.are_published(config)
        second = model_runner.choose(release, config)
        chosen = (drafter(config), policy, mamba)
        vllm_config = cached_config(*chosen, events, second, **options)
        if events and len(groups.kinds(config)) > 1:
            without = cached_config(*chosen, False, second, **options)
            cache_events.check_groups(release, config, vllm_config, without)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise _refusal(release, config, error) from error
    _check_honoured(release, config, vllm_config)
    model_runner.check(release, config, vllm_config)
    try:
        planned = _planning(
            drafter(config), policy, groups.kinds(config), events, second, **options
        )
    except PARTS_MISSING as error:
        return vllm_config, StartUp(None, f"{release}: {start_up.CHECK} cannot be run: {error}")

    def check() -> None:
        check_derived(release, config, vllm_config)
        if planned is not None:
            blocks, length = config["num_blocks"], config["max_model_len"]
            raise RefusedError(
                f"$.config.num_blocks is {json.dumps(blocks)}; {release} does not start with "
                f"max_model_len {length} ({start_up.CHECK}: {planned})"
            )

    checked = checked_start(f"{release} {start_up.CHECK}", check)
    size = config["block_size"]
    if checked.starts and size % KERNEL_BLOCK:
        kernel = f"block_size {size} needs an attention kernel that supports it"
        return vllm_config, StartUp(None, f"{kernel}; {checked.why} accepts everything else")
    return vllm_config, checked


@functools.lru_cache(maxsize=64)
def _planning(
    drafts: tuple[str, int, Ranges] | None,
    policy: str | None,
    kinds: tuple[groups.Kind, ...],
    events: bool,
    second: bool,
    **options: Any,
) -> str | None:
    mamba = any(kind == groups.MAMBA for kind, *_ in kinds)
    vllm_config = cached_config(drafts, policy, mamba, events, second, **options)
    specs = groups.specs(kinds, vllm_config.cache_config, drafts[1] if drafts else 0)
    return start_up.refusal(vllm_config, specs)


@functools.lru_cache(maxsize=64)
def cached_config(
    drafts: tuple[str, int, Ranges] | None = None,
    policy: str | None = None,
    mamba: bool = False,
    events: bool = False,
    second: bool = False,
    **options: Any,
) -> Any:
    """Return vLLM's configuration with these options, and with vLLM's defaults for all others.

    If a `policy` for failed loads is given, the configuration has a connector. With `mamba`, the
    model has Mamba layers. With `events`, vLLM publishes which blocks are cached. `second` says
    which model runner was chosen (`model_runner.choose`): vLLM checks the options for that runner.
    """
    if drafts is not None:
        options["speculative_config"] = speculative_config(*drafts)
    if policy is not None:
        options["kv_transfer_config"] = importlib.import_module("vllm.config").KVTransferConfig(
            kv_connector="FromNowhere",
            kv_connector_module_path=f"{__package__}.connector",
            kv_role="kv_both",
            kv_load_failure_policy=policy,
        )
    if events:
        options["kv_events_config"] = cache_events.events_config()
    # By default, each decision completes before the next one is made.
    vllm_config = engine_config(**{"async_scheduling": False, **options})
    if mamba:
        groups.derive_mamba(vllm_config)
    return vllm_config


def _refusal(release: Release, config: Mapping[str, Any], error: Exception) -> RefusedError:
    words = " ".join(_sentence(error).split())
    keys = {VLLM_NAMES.get(key, key): key for key in config}
    key = next((keys[word] for word in re.findall(r"\w+", words) if word in keys), None)
    if key is None:
        return RefusedError(f"$.config: {release} refuses it: {words}")
    value = json.dumps(config[key])
    return RefusedError(f"$.config.{key} is {value}; {release} refuses it: {words}")


def _sentence(error: Exception) -> str:
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    first = details()[0]
    words: str = first["msg"].removeprefix("Value error, ")
    return "".join(f"{name}: " for name in first["loc"]) + words


def defaults(release: Release) -> dict[str, Any]:
    options = [key for key in OPTIONS if VLLM_NAMES.get(key, key) in release.options]
    return {key: _value_of(cached_config(), key) for key in options}


def _value_of(vllm_config: Any, key: str) -> Any:
    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    values = {
        "max_loras": vllm_config.lora_config and vllm_config.lora_config.max_loras,
        "block_size": cache.block_size,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "max_model_len": vllm_config.model_config.max_model_len,
        "reserve_full_isl": getattr(scheduler, "scheduler_reserve_full_isl", False),
        "watermark": getattr(scheduler, "watermark", 0),
        "pipeline_parallel_size": vllm_config.parallel_config.pipeline_parallel_size,
        groups.RETENTION: getattr(cache, groups.RETENTION, None),
        groups.MODE: getattr(cache, groups.MODE, "none"),
        groups.UNIT: getattr(cache, groups.UNIT, None),
    }
    return values[key] if key in values else getattr(scheduler, key)


def _check_honoured(release: Release, config: Mapping[str, Any], vllm_config: Any) -> None:
    for key in config.keys() - NOT_OPTIONS:
        has = _value_of(vllm_config, key)
        if has != config[key]:
            instead = json.dumps(has, default=repr)
            raise refuse(key, config[key], f"{instead}, which {release} uses instead")
