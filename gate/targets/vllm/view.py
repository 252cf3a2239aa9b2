"""What can be read off a scheduler of vLLM: its requests, its blocks, its decisions in flight."""

from collections.abc import Mapping
from typing import Any

from .drafts import number_of
from .in_flight import Flight, Flights, depth


class SchedulerView:
    """What `observation` looks at; the `config` is in the terms of the scenario format."""

    def __init__(self, scheduler: Any, config: Mapping[str, Any]) -> None:
        self.scheduler = scheduler
        self.config = config
        self.flights = Flights(depth(config), config.get("early_completions", 0))
        self.hits: dict[str, int] = {}  # tokens that a request found cached when last admitted
        self.encoded: dict[str, tuple[int, ...]] = {}  # segments of a prompt for an encoder
        self._held: dict[str, list[int]] = {}  # blocks by request, when last looked at

    @property
    def requests(self) -> Mapping[str, Any]:
        """The unfinished requests, in the order of their arrival."""
        requests: dict[str, Any] = self.scheduler.requests
        return requests

    def flight(self, decision: Any) -> Flight:
        """Return the decision as a flight, with the place of the token that each request gives."""
        drafts = decision.scheduled_spec_decode_tokens
        resumed = decision.scheduled_cached_reqs.resumed_req_ids
        joining = {*(new.req_id for new in decision.scheduled_new_reqs), *resumed}
        first: dict[str, int] = {}
        for name in decision.num_scheduled_tokens:
            request = self.requests[name]
            known = self.flights.known(name, request, name in joining)
            # The scheduler has already counted the tokens of this step as computed.
            if request.num_computed_tokens >= known:
                first[name] = known - request.num_prompt_tokens
        ahead = bool(self.config.get("async_scheduling"))
        proposed = {
            name: 0 if ahead and name in joining else number_of(drafts[name], ahead)
            for name in first
            if name in drafts
        }
        return Flight(decision, None, first, proposed)

    def blocks(self) -> dict[str, list[int]]:
        """Return the physical blocks of every request that holds some.

        Of a request that has ended, these are the blocks that the release keeps while a decision in
        flight writes them.
        """
        [manager] = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        holders = manager.req_to_blocks.items()
        held = {name: [block.block_id for block in blocks] for name, blocks in holders if blocks}
        for _, blocks in getattr(self.scheduler, "deferred_frees", ()):
            kept = {block.block_id for block in blocks}
            held |= {name: its for name, its in self._held.items() if kept == set(its)}
        self._held = held
        return held

    def free_blocks(self) -> int:
        """Blocks that no request holds, those with cached contents included."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
