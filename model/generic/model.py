"""The reference model of the generic system: vLLM's scheduler, except that each group of the KV
cache has its own pool. The rules of vLLM are stricter than those of the generic system.

The comments of vLLM's model name the rules that all systems share (ALL-Rnn). The generic system's
own rules are implemented in these places: GEN-R01 in `vllm.scheduler.clamp`; GEN-R02, GEN-R04 and
GEN-R10 in `admit_waiting`; GEN-R08 in `vllm.completion.complete`; GEN-R09 in
`vllm.completion.carry_out` and `vllm.scheduler.preempt`; GEN-R05 in `vllm.kv_cache.hold`; GEN-R06
and GEN-R07 in `allocator`; GEN-R11 in `vllm.kv_cache.free`; GEN-R12 in `hold`; GEN-R13 in
`advance_running`; GEN-R14 in `vllm.completion.tokens_in_flight`; GEN-R15 in `vllm.speculation`;
GEN-R16, GEN-R17, GEN-R18, GEN-R19 and GEN-R20 in `vllm.connector`; GEN-R21 and GEN-R22 in
`vllm.queue`; GEN-R41 and GEN-R42 in `vllm.queue.put_back`; GEN-R40 in `vllm.kv_groups.slide`;
GEN-R03 in `VllmModel.refusal`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..config import MOST, Count, Positive, convert
from ..errors import InputError
from ..pool import Pool, free_blocks
from ..scenario import Request
from ..systems import Reference
from ..vllm import group_pools, speculation
from ..vllm.config import SAYING_NOTHING, check_begins_with_full, in_effect
from ..vllm.config import read_config as read_vllm_config
from ..vllm.model import VllmModel
from ..vllm.parameters import KvGroup, PooledGroup, VllmConfig
from ..vllm.state import State

ROOM = 131_072  # tokens; the limit that the model uses if the configuration gives none
SLOTS = 32
# Optional features, which work as in vLLM. Each key has the value that turns the feature off.
FEATURES: Mapping[str, Any] = {
    key: SAYING_NOTHING[key]
    for key in (
        *("async_scheduling", "pipeline_parallel_size", "early_completions"),
        *("num_speculative_tokens", "kv_connector", "kv_load_failure_policy", "kv_groups"),
    )
} | {"order_by_priority": False}


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers that keep the same tokens: all tokens, or the last `window` tokens. Layers with a
    window have a pool of `num_blocks` blocks for themselves."""

    kind: Literal["full", "sliding_window"]
    window: Positive | UnsetType = UNSET
    num_blocks: Positive | UnsetType = UNSET


class GenericConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of any scheduler. Lengths are in tokens, `num_blocks` in blocks. If a value
    is null, the scheduler chooses it, and no rule checks it.

    `order` is the order in which requests start: fcfs (first come, first served) or any. `own`
    contains the keys that the scheduler declares as `config_keys` in its reply to `start`. The keys
    described below are absent unless they have an effect, so a scheduler never sees the keys of a
    feature that it does not have.

    Steps in flight: with `async_scheduling`, a step is decided while the previous one is computed.
    In a pipeline, each stage computes a different decision. `early_completions` models a fast
    worker.

    Drafts: after each token, a drafter proposes `num_speculative_tokens` more.

    Loads: with a `kv_connector`, requests may be parked while the connector loads their blocks. If
    a request's load fails, `kv_load_failure_policy` says whether the request computes the tokens
    itself or ends.

    Groups: each of `kv_groups` has its own blocks for every request, and its own pool. The first
    group is full attention; the configuration's `num_blocks` is the size of its pool.

    Priorities: with `order_by_priority`, the most important requests start first and are preempted
    last.
    """

    block_size: Positive = 16
    num_blocks: Positive | None = None
    max_num_seqs: Positive | None = 8
    max_num_batched_tokens: Positive | None = 512
    max_model_len: Annotated[int, msgspec.Meta(ge=2, le=MOST)] | None = 2048
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = False
    order: Literal["fcfs", "any"] = "fcfs"
    own: dict[str, Any] = {}
    async_scheduling: bool | UnsetType = UNSET
    pipeline_parallel_size: Positive | UnsetType = UNSET
    early_completions: Count | UnsetType = UNSET
    num_speculative_tokens: Count | UnsetType = UNSET
    kv_connector: bool | UnsetType = UNSET
    kv_load_failure_policy: Literal["recompute", "fail"] | UnsetType = UNSET
    order_by_priority: bool | UnsetType = UNSET
    kv_groups: tuple[Group, ...] | UnsetType = UNSET

    @property
    def features(self) -> dict[str, Any]:
        """Return those optional features of vLLM's scheduler that the configuration turns on."""
        own = ("order_by_priority", "kv_groups")
        values = {key: getattr(self, key) for key in FEATURES if key not in own}
        return in_effect(values, {})


def read_config(values: Mapping[str, Any], revision: str) -> GenericConfig:
    config = convert(in_effect(values, FEATURES), GenericConfig)
    if _drafts_ahead(config) and config.enable_prefix_caching:
        problem = "with async_scheduling and a prefix cache is not modelled"
        valid = "0, or one of the other two off"
        raise InputError(
            "$.config.num_speculative_tokens",
            f"{config.num_speculative_tokens} {problem}; valid: {valid}",
        )
    if config.order_by_priority is True and config.order == "fcfs":
        problem = 'true with order fcfs; valid: false, or order "any"'
        raise InputError("$.config.order_by_priority", problem)
    _check_groups(config)
    if config.features:
        read_vllm_config(as_vllm(config), "documented")  # refuses unmodelled combinations
    return config


def _check_groups(config: GenericConfig) -> None:
    if config.kv_groups is UNSET:
        return
    path = "$.config.kv_groups"
    check_begins_with_full(path, [group.kind for group in config.kv_groups])
    full, *further = config.kv_groups
    for key in ("window", "num_blocks"):
        if (value := getattr(full, key)) is not UNSET:
            valid = "absent, since the configuration's num_blocks is the pool of full attention"
            valid = "absent" if key == "window" else valid
            raise InputError(f"{path}[0].{key}", f"{value} for a full group; valid: {valid}")
    for number, group in enumerate(further, start=1):
        if group.kind == "full":
            problem = "full after the first group: its layers belong to the first one"
            raise InputError(f"{path}[{number}].kind", f"{problem}; valid: sliding_window")
        if group.window is UNSET or group.window < 2:
            given = "no window" if group.window is UNSET else f"window {group.window}"
            problem = f"sliding_window with {given}; valid: at least 2 tokens"
            raise InputError(f"{path}[{number}].window", problem)
        if group.num_blocks is UNSET:
            problem = "missing: each group has its own pool; valid: at least 1 block"
            raise InputError(f"{path}[{number}].num_blocks", problem)
    others = {
        "num_blocks null": (config.num_blocks is None, "a number of blocks"),
        "enable_prefix_caching": (config.enable_prefix_caching, "false"),
        "kv_connector": (config.kv_connector is True, "false"),
        "pipeline_parallel_size": ((config.pipeline_parallel_size or 1) > 1, "1"),
    }
    for other, (is_on, instead) in others.items():
        if further and is_on:
            key = other.partition(" ")[0]
            problem = f"{len(config.kv_groups)} groups with {other} are not modelled"
            raise InputError(path, f"{problem}; valid: one group, or {key} {instead}")


def _drafts_ahead(config: GenericConfig) -> bool:
    return bool(config.num_speculative_tokens and config.async_scheduling)


def as_vllm(config: GenericConfig) -> dict[str, Any]:
    """Return the corresponding configuration of vLLM's scheduler, with a single group. In this
    configuration, vLLM's scheduler obeys all rules of the generic system."""
    slots, budget = config.max_num_seqs or SLOTS, config.max_num_batched_tokens or ROOM
    return {
        "block_size": config.block_size,
        "num_blocks": config.num_blocks,
        "max_num_seqs": min(slots, budget),
        "max_num_batched_tokens": budget,
        "max_model_len": config.max_model_len or ROOM,
        "enable_chunked_prefill": config.enable_chunked_prefill,
        "enable_prefix_caching": config.enable_prefix_caching,
        "policy": "priority" if config.order_by_priority is True else "fcfs",
        **config.features,
        # vLLM decides ahead only if the drafter has blocks for its own keys and values.
        "num_lookahead_tokens": config.num_speculative_tokens if _drafts_ahead(config) else 0,
    }


# For each key, the value that has no effect, for comparisons with systems that lack the key.
NEUTRAL: Mapping[str, Any] = {
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "order": "fcfs",
    "own": {},
    **FEATURES,
}


def with_pools(decided_as: VllmConfig, groups: tuple[Group, ...] | UnsetType) -> VllmConfig:
    """Return `decided_as` with these groups, each of which has its own pool."""
    if not groups:
        return decided_as
    further = [
        PooledGroup(group.kind, group.window, num_blocks=group.num_blocks)
        for group in groups[1:]
        if group.num_blocks is not UNSET
    ]
    return msgspec.structs.replace(decided_as, kv_groups=(KvGroup("full"), *further))


@dataclass(frozen=True)
class GenericModel(VllmModel):
    """vLLM's scheduler, in which each group of the KV cache has its own pool."""

    def options(self) -> dict[str, bool]:
        return {**super().options(), "group_free_blocks": bool(self.config.more_groups)}

    def initial(self) -> State:
        further = [Pool(group.num_blocks) for group in group_pools.groups(self.config)]
        return State(pool=Pool(self.config.num_blocks, beside=tuple(further)))

    def refusal(self, request: Request) -> str | None:
        """Return why `request` can never run, or None if it can. A request can run only if it fits
        into the pool of each group (ALL-R12)."""
        if (why := super().refusal(request)) is not None:
            return why
        longest = sum(request.whole) - 1
        tokens = speculation.most_slots(self.config, longest) if self.config.drafts else longest
        if (shortage := group_pools.shortage(self.config, tokens)) is None:
            return None
        return f"prompt + max_tokens - 1 = {longest} tokens needs {shortage}"

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        after, seen = super().step(state, abort_inside)
        if self.config.more_groups:
            seen["group_free_blocks"] = [free_blocks(pool) for pool in after.pool.beside]
        return after, seen


def make_model(revision: str, config: Mapping[str, Any]) -> GenericModel:
    read = read_config(config, revision)
    decided_as = read_vllm_config(as_vllm(read), "documented")
    return GenericModel(with_pools(decided_as, read.kv_groups))


REFERENCE = Reference(read_config, make_model, features=tuple(FEATURES))
