"""vLLM's parameters, in its own terms, with the defaults of the scenario format."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..config import Count, Positive, convert
from ..errors import InputError

Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]

NULL_BLOCK = 1  # blocks of a pool that hold no request's tokens
# Keys that are absent at their defaults, so that targets without these features never see them.
SAYING_NOTHING = {
    "num_speculative_tokens": 0,
    "num_lookahead_tokens": 0,
    "num_speculative_tokens_per_batch_size": None,
    "async_scheduling": False,
    "pipeline_parallel_size": 1,
    "early_completions": 0,
    "kv_connector": False,
    "kv_load_failure_policy": "recompute",
    "synchronous_loads": False,
    "max_num_encoder_input_tokens": 0,
    "encoder_cache_size": 0,
    "kv_groups": [{"kind": "full"}],
    "prefix_cache_retention_interval": None,
    "mamba_cache_mode": "none",
    "cache_partitions": False,
    "max_loras": None,
    "structured_outputs": False,
    "reused_ids": False,
    "streaming_inputs": False,
}


class KvGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers that keep the same tokens: all tokens, the last `window` tokens, or the tokens of the
    current chunk of `window` tokens. Mamba layers keep a state instead of tokens."""

    kind: Literal["full", "sliding_window", "chunked_local", "mamba"]
    window: Positive | UnsetType = UNSET


class VllmConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lengths are in tokens, `num_blocks` in blocks (without the null block; null: unbounded).

    `watermark` is a fraction of the pool, including the null block; `long_prefill_token_threshold`
    0 means no threshold.

    Drafts: after each token, `num_speculative_tokens` more are proposed. `num_lookahead_tokens` is
    the same number if the drafter has its own keys and values (EAGLE), otherwise 0 (n-gram). With
    `num_speculative_tokens_per_batch_size`, a list of entries [first, last, drafts], the number of
    drafts depends on the number of requests in a step; gaps belong to the entry before them.

    Several decisions at once: with `async_scheduling`, a step is decided while the previous one is
    being computed; in a pipeline, each stage computes a different decision. `early_completions`
    models a fast worker: the oldest decision completes early in that many consecutive steps, and
    then one more stays in flight.

    Loads: with a `kv_connector`, requests may be parked while it loads keys and values for them;
    `kv_load_failure_policy` says whether a request computes the tokens itself or ends if its load
    fails (V1-R28). With `synchronous_loads`, requests are not parked, but load in their first step.

    Encoder: it computes at most `max_num_encoder_input_tokens` tokens in a step, and keeps outputs
    of at most `encoder_cache_size` tokens.

    Groups: each of `kv_groups` holds its own blocks for every request, all from one pool. The first
    is full attention. With `prefix_cache_retention_interval` 0, a block of a sliding window can be
    found only if the same prompt, or one that shares its cached beginning, would read the block;
    with null, every block can be found. A prefix cache keeps the Mamba states at which steps end
    or, with `mamba_cache_mode` all, those at the end of every block.

    Partitions: with `cache_partitions`, requests may have a salt or an adapter, and find only
    blocks of requests with the same salt and adapter. A step computes requests with at most
    `max_loras` different adapters; with null, there is no limit.

    Grammars: with `structured_outputs`, requests may wait until their grammar is compiled.

    Sessions: with `streaming_inputs`, a request may have several turns, with a further input each.

    Ids: with `reused_ids`, a request may have the id of a request that has ended.
    """

    block_size: Positive = 16
    num_blocks: Positive | None = None
    max_num_seqs: Positive = 128
    max_num_batched_tokens: Positive = 2048
    max_model_len: Positive = 8192
    long_prefill_token_threshold: Count = 0  # V1CP-R09
    enable_chunked_prefill: bool = True  # V1CP-R06
    enable_prefix_caching: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Share = 0.0  # V1CP-R21
    reserve_full_isl: bool = True  # V1CP-R23
    # Drafts (`speculation`). The keys of a feature are absent if they have their defaults.
    num_speculative_tokens: Count | UnsetType = UNSET
    num_lookahead_tokens: Count | UnsetType = UNSET
    num_speculative_tokens_per_batch_size: (
        tuple[tuple[Positive, Positive, Count], ...] | UnsetType | None
    ) = UNSET
    # Several decisions at once (`in_flight`).
    async_scheduling: bool | UnsetType = UNSET
    pipeline_parallel_size: Positive | UnsetType = UNSET
    early_completions: Count | UnsetType = UNSET
    # Loads (`connector`).
    kv_connector: bool | UnsetType = UNSET
    kv_load_failure_policy: Literal["recompute", "fail"] | UnsetType = UNSET
    synchronous_loads: bool | UnsetType = UNSET
    # Inputs that an encoder computes (`encoder`).
    max_num_encoder_input_tokens: Count | UnsetType = UNSET
    encoder_cache_size: Count | UnsetType = UNSET
    # Layers that do not all keep the same tokens (`kv_groups`).
    kv_groups: tuple[KvGroup, ...] | UnsetType = UNSET
    prefix_cache_retention_interval: Count | UnsetType | None = UNSET
    mamba_cache_mode: Literal["none", "align", "all"] | UnsetType = UNSET
    # Salts and adapters of requests (`partition`).
    cache_partitions: bool | UnsetType = UNSET
    max_loras: Positive | UnsetType | None = UNSET
    # Requests that wait for their grammar (`blocked`).
    structured_outputs: bool | UnsetType = UNSET
    # Reused ids: inside the model, every request has an id of its own.
    reused_ids: bool | UnsetType = UNSET
    # Requests with several turns (`sessions`).
    streaming_inputs: bool | UnsetType = UNSET

    @property
    def watermark_blocks(self) -> int:
        """Return the number of blocks that admission leaves free while a request runs."""
        return int(self.watermark * (self.num_blocks + NULL_BLOCK)) if self.num_blocks else 0

    # Drafts.

    @property
    def drafts(self) -> int:
        """Return how many tokens are proposed after each token, to be verified in the next step."""
        return self.num_speculative_tokens or 0

    @property
    def has_dynamic_drafts(self) -> bool:
        """Return whether the number of drafts depends on the number of requests in a step."""
        return bool(self.num_speculative_tokens_per_batch_size)

    @property
    def lookahead(self) -> int:
        """Return the further tokens with blocks, for the drafter's own keys and values."""
        return self.num_lookahead_tokens or 0

    # Several decisions at once.

    @property
    def decides_ahead(self) -> bool:
        """Return whether a request is scheduled again while its last token is in flight."""
        return self.async_scheduling is True

    @property
    def depth(self) -> int:
        """Return how many decisions can be in flight at once."""
        stages = self.pipeline_parallel_size or 1
        return max(stages, 2) if self.decides_ahead else stages

    @property
    def early(self) -> int:
        """Return in how many consecutive steps a decision completes early before one more stays in
        flight."""
        return self.early_completions or 0

    # Loads.

    @property
    def loads(self) -> bool:
        """Return whether requests may be parked while a connector loads their keys and values."""
        return self.kv_connector is True

    @property
    def loads_in_step(self) -> bool:
        """Return whether a request loads in the step that schedules it."""
        return self.synchronous_loads is True

    @property
    def ends_on_failed_loads(self) -> bool:
        return self.kv_load_failure_policy == "fail"

    # Requests that wait for their grammar.

    @property
    def has_grammars(self) -> bool:
        return self.structured_outputs is True

    # Requests with several turns.

    @property
    def has_sessions(self) -> bool:
        return self.streaming_inputs is True

    # Inputs that an encoder computes.

    @property
    def encodes(self) -> bool:
        return self.encoder_budget > 0

    @property
    def encoder_budget(self) -> int:
        return self.max_num_encoder_input_tokens or 0

    @property
    def encoder_room(self) -> int:
        return self.encoder_cache_size or 0

    @property
    def longest_input(self) -> int:
        return min(self.encoder_budget, self.encoder_room)

    # Layers that do not all keep the same tokens.

    @property
    def retains_little(self) -> bool:
        """Return whether only a few blocks of sliding windows can be found later."""
        return self.prefix_cache_retention_interval == 0

    @property
    def more_groups(self) -> tuple[KvGroup, ...]:
        """Return the groups of the KV cache after the first, which is full attention."""
        return self.kv_groups[1:] if self.kv_groups else ()

    @property
    def caches_states(self) -> bool:
        return bool(self.kv_groups) and self.enable_prefix_caching and self.has_mamba

    @property
    def leaves_every_state(self) -> bool:
        """Return whether a step leaves a Mamba state at the end of each of its blocks."""
        return self.mamba_cache_mode == "all"

    @property
    def has_mamba(self) -> bool:
        return any(group.kind == "mamba" for group in self.more_groups)


def read_config(values: Mapping[str, Any], revision: str) -> VllmConfig:
    config = convert(in_effect(values, SAYING_NOTHING), VllmConfig)
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise InputError(
            "$.config.max_num_batched_tokens",
            f"{config.max_num_batched_tokens} is less than max_num_seqs ({config.max_num_seqs}): "
            f"not every request could decode; valid: at least {config.max_num_seqs}",
        )
    if config.long_prefill_token_threshold > config.max_model_len:
        raise InputError(
            "$.config.long_prefill_token_threshold",
            f"{config.long_prefill_token_threshold} is beyond max_model_len "
            f"({config.max_model_len}); valid: 0 to {config.max_model_len}",
        )
    _check_speculation(config)
    _check_dynamic_drafts(config)
    _check_in_flight(config)
    _check_encoder(config)
    _check_groups(config)
    _check_mamba(config)
    _check_grammars(config)
    _check_sessions(config)
    _check_adapters(config)
    if config.loads_in_step and not config.loads:
        problem = "true without a kv_connector; valid: false, or kv_connector true"
        raise InputError("$.config.synchronous_loads", problem)
    if config.reused_ids is True and config.loads:
        problem = "true with a kv_connector is not modelled; valid: false, or no kv_connector"
        raise InputError("$.config.reused_ids", problem)
    return config


def in_effect(values: Mapping[str, Any], neutral: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given, without those that only repeat the neutral one."""

    def says_nothing(key: str, value: Any) -> bool:
        nothing = neutral.get(key, UNSET)
        return value is UNSET or (bool(value == nothing) and type(value) is type(nothing))

    return {key: value for key, value in values.items() if not says_nothing(key, value)}


def _check_speculation(config: VllmConfig) -> None:
    path = "$.config.num_lookahead_tokens"
    if config.lookahead not in (0, config.drafts):
        valid = f"0, or num_speculative_tokens ({config.drafts})"
        raise InputError(path, f"{config.lookahead} fits no drafter; valid: {valid}")
    if config.lookahead >= config.max_num_batched_tokens:
        raise InputError(
            path,
            f"{config.lookahead} leaves nothing of max_num_batched_tokens "
            f"({config.max_num_batched_tokens}); valid: less than that",
        )


def _check_dynamic_drafts(config: VllmConfig) -> None:
    ranges = config.num_speculative_tokens_per_batch_size
    if ranges is UNSET or ranges is None:
        return
    path, ends = "$.config.num_speculative_tokens_per_batch_size", 0
    others = {
        "no num_speculative_tokens": not config.drafts,
        "a pipeline": (config.pipeline_parallel_size or 1) > 1,
        "a kv_connector": config.loads,
    }
    _refuse_beside(path, "a list", others, "null")
    for number, (first, last, _) in enumerate(ranges):
        if not ends < first <= last or (number == 0 and first > 1):
            valid = "1" if number == 0 else f"more than {ends}, and at most {last}"
            raise InputError(f"{path}[{number}][0]", f"{first}; valid: {valid}")
        ends = last
    if not ranges:
        raise InputError(path, "is empty; valid: null, or a list that begins with batch size 1")


def _check_in_flight(config: VllmConfig) -> None:
    if config.early and config.depth == 1:
        raise InputError(
            "$.config.early_completions",
            f"{config.early} if every step completes at once; valid: 0, or async_scheduling, or "
            "a pipeline_parallel_size of at least 2",
        )
    if config.drafts and config.decides_ahead and config.lookahead != config.drafts:
        raise InputError(
            "$.config.num_lookahead_tokens",
            f"{config.lookahead} with async_scheduling: vLLM decides ahead only with a drafter "
            "that has keys and values of its own (EAGLE); "
            f"valid: {config.drafts}, or async_scheduling false",
        )


def _check_encoder(config: VllmConfig) -> None:
    if bool(config.encoder_budget) != bool(config.encoder_room):
        first, other = "encoder_cache_size", "max_num_encoder_input_tokens"
        if config.encoder_room:
            first, other = other, first
        raise InputError(
            f"$.config.{first}",
            f"0 with {other} {getattr(config, other)}: an encoder needs both; valid: at least 1, "
            f"or no {other}",
        )
    if config.encoder_budget and config.lookahead:
        raise InputError(
            "$.config.num_lookahead_tokens",
            f"{config.lookahead} with an encoder is not modelled: such a drafter reads a token "
            "ahead; valid: 0, or no encoder_cache_size",
        )


def _check_groups(config: VllmConfig) -> None:
    if config.prefix_cache_retention_interval:
        path = "$.config.prefix_cache_retention_interval"
        problem = f"{config.prefix_cache_retention_interval} is not modelled; valid: 0 or null"
        raise InputError(path, problem)
    if config.kv_groups is UNSET:
        return
    path = "$.config.kv_groups"
    if not config.kv_groups or config.kv_groups[0].kind != "full":
        first = f"begins with {config.kv_groups[0].kind}" if config.kv_groups else "is empty"
        raise InputError(path, f"{first}; valid: a list that begins with a full group")
    if config.more_groups and all(group.kind == "full" for group in config.kv_groups):
        problem = f"{len(config.kv_groups)} full groups: vLLM makes one group of them"
        raise InputError(path, f"{problem}; valid: another kind behind the first")
    for number, group in enumerate(config.kv_groups):
        given = "no window" if group.window is UNSET else f"window {group.window}"
        window, valid = group.window or 0, ""
        if group.kind == "sliding_window" and window < 2:
            valid = "at least 2 tokens"
        if group.kind == "chunked_local" and (not window or window % config.block_size):
            valid = f"a multiple of block_size ({config.block_size})"
        if group.kind in ("full", "mamba") and window:
            valid = "absent"
        if valid:
            problem = f"{group.kind} with {given}; valid: {valid}"
            raise InputError(f"{path}[{number}].window", problem)
    others = {
        "pipeline_parallel_size": (config.pipeline_parallel_size or 1) > 1,
        "kv_connector": config.loads,
        "num_lookahead_tokens": config.lookahead > 0,
    }
    for key, is_on in others.items():
        if config.more_groups and is_on:
            problem = f"{len(config.kv_groups)} groups with {key} are not modelled"
            raise InputError(path, f"{problem}; valid: one group, or no {key}")


def _check_mamba(config: VllmConfig) -> None:
    others = {"num_speculative_tokens": config.drafts, "encoder_cache_size": config.encoder_room}
    for key, value in others.items():
        if config.has_mamba and value:
            problem = f"{value} with a mamba group is not modelled"
            raise InputError(f"$.config.{key}", f"{problem}; valid: 0, or no mamba group")
    mode = config.mamba_cache_mode
    if mode and not config.caches_states:
        missing = "a mamba group" if config.enable_prefix_caching else "prefix caching"
        raise InputError(
            "$.config.mamba_cache_mode", f"{mode} without {missing}; valid: none, or {missing}"
        )
    aligns = config.caches_states and not config.leaves_every_state
    if aligns and not config.enable_chunked_prefill:
        raise InputError(
            "$.config.enable_chunked_prefill",
            "false with a mamba group and prefix caching: vLLM needs chunks that end at block "
            "boundaries; valid: true, or enable_prefix_caching false",
        )


def _check_grammars(config: VllmConfig) -> None:
    others = {
        "kv_connector": config.loads,
        "pipeline_parallel_size": config.depth > 2,
    }
    for key, is_on in others.items():
        if config.has_grammars and is_on:
            value = "true" if config.loads else config.pipeline_parallel_size
            raise InputError(
                "$.config.structured_outputs",
                f"true with {key} {value} is not modelled; valid: false, or "
                + ("no kv_connector" if config.loads else "at most 2 decisions in flight"),
            )


def _check_sessions(config: VllmConfig) -> None:
    others = {
        "kv_connector": config.loads,
        "num_speculative_tokens": config.drafts > 0,
        "async_scheduling": config.decides_ahead,
        "pipeline_parallel_size": config.depth > 1,
        "encoder_cache_size": config.encodes,
        "kv_groups": bool(config.more_groups),
        "structured_outputs": config.has_grammars,
        'policy "priority"': config.policy == "priority",
    }
    if config.has_sessions:
        _refuse_beside("$.config.streaming_inputs", "true", others, "false, or no {}")


def _check_adapters(config: VllmConfig) -> None:
    others = {
        "cache_partitions false": config.cache_partitions is not True,
        "a kv_connector": config.loads,
        "structured_outputs": config.has_grammars,
        "several decisions in flight": config.depth > 1,
        "an encoder": config.encodes,
    }
    if config.max_loras:
        _refuse_beside("$.config.max_loras", str(config.max_loras), others, "null")


def _refuse_beside(path: str, value: str, others: Mapping[str, bool], valid: str) -> None:
    """Refuse a value together with the first of the other options that is on; {} in `valid` stands
    for that option."""
    for other, is_on in others.items():
        if is_on:
            problem = f"{value} with {other} is not modelled; valid: {valid.format(other)}"
            raise InputError(path, problem)


# For each key, the value without effect, for comparisons with systems that lack the key.
NEUTRAL: Mapping[str, Any] = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "policy": "fcfs",
    "watermark": 0.0,
    # the other revisions admit a request only if its whole prompt fits, too
    "reserve_full_isl": True,
    **SAYING_NOTHING,
}
