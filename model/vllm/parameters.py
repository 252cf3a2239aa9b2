"""vLLM's parameters, with the names and defaults of the scenario format."""

import math
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..config import Count, Positive

Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]

NULL_BLOCK = 1  # blocks of a pool that hold no request's tokens


class KvGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers that keep the same tokens: all tokens, the last `window` tokens, or the tokens of the
    current chunk of `window` tokens. Mamba layers keep a state instead of tokens. Layers with a
    `circular_buffer` overwrite the tokens in a single block.

    A group without a `block_size` has the configuration's block size. Full attention always has
    that size.
    """

    kind: Literal["full", "sliding_window", "chunked_local", "mamba", "circular_buffer"]
    window: Positive | UnsetType = UNSET
    block_size: Positive | UnsetType = UNSET


class PooledGroup(KvGroup, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A group that has a pool of `num_blocks` blocks for itself.

    No vLLM release has such groups, so vLLM's configurations cannot contain them. The generic
    system has them (`group_pools`).
    """

    num_blocks: Positive


class VllmConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The configuration of a scheduler. Lengths are in tokens, `num_blocks` in blocks (without the
    null block; null: unbounded).

    `watermark` is a fraction of the pool, including the null block. A
    `long_prefill_token_threshold` of 0 means no threshold.

    Drafts: after each token, `num_speculative_tokens` more are proposed. `num_lookahead_tokens` is
    the same number if the drafter has its own keys and values (EAGLE), otherwise 0 (n-gram). With
    `num_speculative_tokens_per_batch_size`, a list of entries [first, last, drafts], the number of
    drafts depends on the number of requests in a step. Gaps belong to the preceding entry.

    Several decisions at once: with `async_scheduling`, a step is decided while the previous one is
    being computed; in a pipeline, each stage computes a different decision. `early_completions`
    models a fast worker: the oldest decision completes early in that many consecutive steps, and
    then one more decision stays in flight. `use_v2_model_runner`: the worker is vLLM's second model
    runner, which allows one more decision in flight with asynchronous scheduling in a pipeline.

    Loads: with a `kv_connector`, requests may be parked while the connector loads their keys and
    values. `kv_load_failure_policy` says whether a request whose load fails computes the tokens
    itself, or ends (V1-R28). With `synchronous_loads`, requests are not parked, but load in their
    first step.

    Encoder: a step encodes at most `max_num_encoder_input_tokens` tokens, and the cache keeps
    outputs of at most `encoder_cache_size` tokens.

    Groups: each of `kv_groups` has its own blocks for every request; all come from one pool. The
    first group is full attention. With `prefix_cache_retention_interval` 0, a block of a sliding
    window can be found only if the block would be read by the same prompt, or by a prompt that
    shares its cached beginning. With a positive interval, the windows that end at its multiples can
    be found as well; with null, every block can be found. A prefix cache keeps the Mamba states at
    which steps end or, with `mamba_cache_mode` all, those at the end of every block. With a
    `prefix_match_unit` shorter than a block, a hit may also end inside a block, at the last
    multiple of the unit in an earlier prompt.

    Partitions: with `cache_partitions`, requests may have a salt or an adapter, and find only
    blocks of requests with the same salt and adapter. A step computes requests with at most
    `max_loras` different adapters; null means no limit.

    Grammars: with `structured_outputs`, requests may wait until their grammar is compiled.

    Sessions: with `streaming_inputs`, a request may have several turns, each with a further input.

    Limits since 0.33: at most `max_num_active_seqs` requests run; null means `max_num_seqs`. With
    `long_prefill_token_threshold_adaptive`, the threshold is at least the budget divided by the
    number of unfinished requests. With `disable_chunked_mm_input`, a step computes all tokens of an
    encoder input or none, unless the input is longer than the threshold. While a request decodes,
    prefill is computed in only one of every `prefill_schedule_interval` steps.

    Events: with `kv_cache_events`, routers are told which blocks the prefix cache can find: those
    new since the last step (incremental), or also those that a request finds (full).

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
    use_v2_model_runner: bool | UnsetType = UNSET
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
    prefix_match_unit: Positive | UnsetType | None = UNSET
    # Salts and adapters of requests (`model.partition_content`).
    cache_partitions: bool | UnsetType = UNSET
    max_loras: Positive | UnsetType | None = UNSET
    # Requests that wait for their grammar (`blocked`).
    structured_outputs: bool | UnsetType = UNSET
    # Reused ids. Inside the model, every request has a unique id.
    reused_ids: bool | UnsetType = UNSET
    # Requests with several turns (`sessions`).
    streaming_inputs: bool | UnsetType = UNSET
    # Limits in addition to `max_num_seqs`, the threshold and the encoder's.
    max_num_active_seqs: Positive | UnsetType | None = UNSET
    long_prefill_token_threshold_adaptive: bool | UnsetType = UNSET
    disable_chunked_mm_input: bool | UnsetType = UNSET
    prefill_schedule_interval: Positive | UnsetType = UNSET
    # What routers are told (`cache_events`).
    kv_cache_events: Literal["none", "incremental", "full"] | UnsetType = UNSET

    @cached_property
    def slots(self) -> int:
        """Return how many requests may run (V1-I3, V1-R87)."""
        return self.max_num_active_seqs or self.max_num_seqs

    @cached_property
    def prefill_interval(self) -> int:
        """Return the interval between prefills: one step in this many computes prefills
        (V1-R97)."""
        return self.prefill_schedule_interval or 1

    @cached_property
    def publishes_events(self) -> bool:
        return bool(self.kv_cache_events) and self.kv_cache_events != "none"

    @cached_property
    def holds_prefills(self) -> bool:
        return self.prefill_interval > 1

    @cached_property
    def watermark_blocks(self) -> int:
        """Return the number of blocks that admission leaves free while a request runs."""
        return int(self.watermark * (self.num_blocks + NULL_BLOCK)) if self.num_blocks else 0

    # Drafts.

    @cached_property
    def drafts(self) -> int:
        """Return how many drafts are proposed after each token. The next step verifies them."""
        return self.num_speculative_tokens or 0

    @cached_property
    def has_dynamic_drafts(self) -> bool:
        """Return whether the number of drafts depends on the number of requests in a step."""
        return bool(self.num_speculative_tokens_per_batch_size)

    @cached_property
    def read_ahead(self) -> int:
        """Return how many tokens the drafter reads beyond those of a prefill step."""
        return int(self.lookahead > 0)

    @cached_property
    def lookahead(self) -> int:
        """Return how many tokens beyond its own a request has blocks for. The drafter stores
        the keys and values of these tokens."""
        return self.num_lookahead_tokens or 0

    # Several decisions at once.

    @cached_property
    def decides_ahead(self) -> bool:
        """Return whether a request is scheduled again while its last token is in flight."""
        return self.async_scheduling is True

    @cached_property
    def depth(self) -> int:
        """Return how many decisions can be in flight at once."""
        stages = self.pipeline_parallel_size or 1
        if self.decides_ahead and self.has_v2_runner:
            return stages + 1
        return max(stages, 2) if self.decides_ahead else stages

    @cached_property
    def has_v2_runner(self) -> bool:
        return self.use_v2_model_runner is True

    @cached_property
    def turn(self) -> int:
        """Return the smallest number of steps from a decision that yields a token to the next
        decision for the same request (V1-R50). Return 0 if there is no such limit."""
        stages = self.pipeline_parallel_size or 1
        return stages if self.has_v2_runner and self.decides_ahead and stages > 1 else 0

    @cached_property
    def holds_grammars(self) -> bool:
        """Return whether requests with a grammar must rest, because a mask could otherwise be made
        while tokens before it are still in flight (V1-R64)."""
        return self.has_grammars and self.decides_ahead and self.depth > 2 and not self.turn

    @cached_property
    def early(self) -> int:
        """Return the number of consecutive steps in which a decision completes early. After these,
        one more decision stays in flight."""
        return self.early_completions or 0

    # Loads.

    @cached_property
    def loads(self) -> bool:
        """Return whether requests may be parked while a connector loads their keys and values."""
        return self.kv_connector is True

    @cached_property
    def loads_in_step(self) -> bool:
        """Return whether a request loads in the step that schedules it."""
        return self.synchronous_loads is True

    @cached_property
    def ends_on_failed_loads(self) -> bool:
        return self.kv_load_failure_policy == "fail"

    # Requests that wait for their grammar.

    @cached_property
    def has_grammars(self) -> bool:
        return self.structured_outputs is True

    # Requests with several turns.

    @cached_property
    def has_sessions(self) -> bool:
        return self.streaming_inputs is True

    # Inputs that an encoder computes.

    @cached_property
    def encodes(self) -> bool:
        return self.encoder_budget > 0

    @cached_property
    def encoder_budget(self) -> int:
        return self.max_num_encoder_input_tokens or 0

    @cached_property
    def encoder_room(self) -> int:
        return self.encoder_cache_size or 0

    @cached_property
    def longest_input(self) -> int:
        return min(self.encoder_budget, self.encoder_room)

    # Layers that do not all keep the same tokens.

    @cached_property
    def retains_little(self) -> bool:
        """Return whether later requests can find only a few blocks of sliding windows."""
        return isinstance(self.prefix_cache_retention_interval, int)

    @cached_property
    def more_groups(self) -> tuple[KvGroup, ...]:
        """Return the groups of the KV cache after the first, which is full attention."""
        return self.kv_groups[1:] if self.kv_groups else ()

    @cached_property
    def has_own_pools(self) -> bool:
        return any(isinstance(group, PooledGroup) for group in self.more_groups)

    @cached_property
    def hit_unit(self) -> int:
        """Return the unit, in tokens, of prefix hits that end at block boundaries. With several
        groups, a hit ends where a block of each group ends (V1-R86)."""
        return math.lcm(self.block_size, *(self.size_of(group) for group in self.more_groups))

    def size_of(self, group: KvGroup) -> int:
        """Return the number of tokens in a block of a group."""
        return group.block_size or self.block_size

    @cached_property
    def caches_states(self) -> bool:
        return bool(self.kv_groups) and self.enable_prefix_caching and self.has_mamba

    @cached_property
    def match_unit(self) -> int:
        """Return the unit, in tokens, of all prefix hits. It may be shorter than a block."""
        return self.prefix_match_unit or self.hit_unit

    @cached_property
    def hits_inside(self) -> bool:
        """Return whether a prefix hit may end inside a block."""
        return bool(self.prefix_match_unit) and self.match_unit < self.block_size

    @cached_property
    def leaves_every_state(self) -> bool:
        """Return whether a step leaves a Mamba state at the end of each of its blocks."""
        return self.mamba_cache_mode == "all"

    @cached_property
    def has_mamba(self) -> bool:
        return any(group.kind == "mamba" for group in self.more_groups)
