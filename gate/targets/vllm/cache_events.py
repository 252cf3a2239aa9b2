"""The events that vLLM publishes for routers, and the blocks that its prefix cache can find.

Source: vllm.distributed.kv_events; BlockPool, which makes the events; Scheduler.update_from_output,
which publishes them.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from ..protocol_checks import refuse

KEY = "kv_cache_events"
NONE, INCREMENTAL, FULL = MODES = ("none", "incremental", "full")
REPORT = "kv_cache_report_mode"  # an extra argument of a request
KINDS = {"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}


def are_published(config: Mapping[str, Any]) -> bool:
    return bool(config.get(KEY, NONE) != NONE)


def check(release: Any, config: Mapping[str, Any]) -> None:
    pool = importlib.import_module("vllm.v1.core.block_pool").BlockPool
    if config.get(KEY) == FULL and not hasattr(pool, "emit_cached_block_events"):
        valid = f"{NONE} or {INCREMENTAL} ({release} does not report blocks that are found)"
        raise refuse(KEY, FULL, valid)


def check_groups(release: Any, config: Mapping[str, Any], chosen: Any, without: Any) -> None:
    """Refuse several groups if, with events, the release would manage them as one.

    `chosen` is vLLM's configuration, and `without` the same one without events.
    """
    manages_one = [
        bool(getattr(each.scheduler_config, "disable_hybrid_kv_cache_manager", False))
        for each in (chosen, without)
    ]
    if manages_one == [True, False]:
        valid = f"{NONE} with several groups ({release} disables its hybrid KV cache manager)"
        raise refuse(KEY, config[KEY], valid)


def events_config() -> Any:
    """Return vLLM's option that turns the events on. `Published` replaces their publisher."""
    options = {"enable_kv_cache_events": True, "publisher": "null"}
    return importlib.import_module("vllm.config.kv_events").KVEventsConfig(**options)


def ask_for(taken: Any, config: Mapping[str, Any]) -> None:
    """If the configuration says so, let a request report the blocks that it finds."""
    if config.get(KEY) == FULL:
        taken.sampling_params.extra_args = {REPORT: FULL}


class Published:
    """Stands in for a scheduler's publisher of events, and keeps the events."""

    def __init__(self, scheduler: Any) -> None:
        self._events: list[Any] = []
        self._known: set[Any] = (
            set()
        )  # the blocks that could be found when events were last published
        self._pool = scheduler.kv_cache_manager.block_pool
        self._utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        removed = importlib.import_module("vllm.distributed.kv_events").BlockRemoved
        self._name_groups = "group_idx" in removed.__struct_fields__
        scheduler.kv_event_publisher = self

    def publish(self, batch: Any) -> None:
        self._events += batch.events

    def shutdown(self) -> None:
        """Do nothing: nothing is sent anywhere."""

    def take(self, completes: bool) -> dict[str, Any]:
        """Return the fields of a step that show the events. If no decision completes, the release
        publishes nothing."""
        if not completes:
            return {}
        events, self._events = [*map(self._event, self._events)], []
        known, self._known = self._known, {*self._pool.cached_block_hash_to_block._cache}
        return {
            "events": events,
            "entered": [*map(self._name_of, self._known - known)],
            "left": [*map(self._name_of, known - self._known)],
        }

    def _event(self, event: Any) -> dict[str, Any]:
        kind = KINDS[type(event).__name__]
        if kind == "cleared":
            return {"kind": kind}
        group = getattr(event, "group_idx", None)
        names = [self._name(key, group) for key in event.block_hashes]
        shown: dict[str, Any] = {"kind": kind, "blocks": names}
        if kind == "stored":
            shown |= {"tokens": len(event.token_ids), "block_size": event.block_size}
        return shown

    def _name_of(self, key: Any) -> str:
        published = self._utils.maybe_convert_block_hash(self._utils.get_block_hash(key))
        return self._name(published, self._utils.get_group_id(key))

    def _name(self, published: Any, group: int | None) -> str:
        """Return the name of a block by its published hash. Early releases do not publish the
        group."""
        number = published if isinstance(published, int) else int.from_bytes(published, "big")
        return f"{number:x} {group}" if self._name_groups else f"{number:x}"
