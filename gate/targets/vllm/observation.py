"""Report a step of vLLM's scheduler in the form of the protocol."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..release_adapter import ids, kind_of, outputs
from . import cache_events, encoder, grammars, groups, sessions, worker
from .drafts import Drafts, count_drafts
from .in_flight import Flight, Flights, depth


class SchedulerView:
    """The objects that this module reads; `config` uses the keys of the scenario format."""

    def __init__(self, scheduler: Any, config: Mapping[str, Any]) -> None:
        self.scheduler = scheduler
        self.config = config
        self.flights = Flights(depth(config), config.get("early_completions", 0))
        self.drafts = Drafts(config)
        self.grammars = grammars.Grammars()
        # For each request: the cached tokens found at its last admission, and the parts of its
        # prompt that the encoder computes.
        self.hits: dict[str, int] = {}
        self.encoded: dict[str, tuple[int, ...]] = {}
        # For each request, as of the last call to `blocks`: vLLM's block objects and their numbers.
        self._tables: dict[str, list[Any]] = {}
        self._held: dict[str, list[int]] = {}
        self._in_groups: dict[str, list[list[int]]] = {}  # blocks in all groups but the first
        self.published: cache_events.Published | None = None

    @property
    def requests(self) -> Mapping[str, Any]:
        requests: dict[str, Any] = self.scheduler.requests
        return requests

    def flight(self, decision: Any) -> Flight:
        drafts = decision.scheduled_spec_decode_tokens
        resumed = decision.scheduled_cached_reqs.resumed_req_ids
        joining = {*(new.req_id for new in decision.scheduled_new_reqs), *resumed}
        first: dict[str, int] = {}
        for name in decision.num_scheduled_tokens:
            request = self.requests[name]
            known = self.flights.known(name, request, name in joining)
            # The scheduler already counts this step's tokens as computed.
            if request.num_computed_tokens >= known:
                first[name] = known - request.num_prompt_tokens
        ahead = bool(self.config.get("async_scheduling"))
        proposed = {
            name: 0 if ahead and name in joining else count_drafts(drafts[name], ahead)
            for name in first
            if name in drafts
        }
        flight = Flight(decision, None, first, proposed)
        return self.grammars.verified(flight, self.flights) if ahead else flight

    def blocks(self) -> dict[str, list[int]]:
        """Return the physical blocks of every request that holds any.

        A request that has ended still holds blocks if a decision in flight may write to them. If a
        request's blocks have not changed since the last call, the list is the same object.
        """
        tables: dict[str, list[Any]] = {}
        held: dict[str, list[int]] = {}
        deferred: dict[str, list[list[int]]] = {}
        for name, blocks in self._managers[0].req_to_blocks.items():
            if not blocks:
                continue
            if self._tables.get(name) == blocks:  # the same block objects have the same numbers
                tables[name], held[name] = self._tables[name], self._held[name]
            else:
                tables[name], held[name] = [*blocks], [block.block_id for block in blocks]
        for _, blocks in getattr(self.scheduler, "deferred_frees", ()):
            kept = {block.block_id for block in blocks} - {NULL}
            for name, numbers in self._held.items():
                beside = self._in_groups.get(name, ())
                own = kept.difference(*beside) if beside else kept
                if numbers[0] in own and own == set(numbers):
                    held[name] = numbers
                    deferred[name] = [
                        [block if block in kept else NULL for block in table] for table in beside
                    ]
        if len(self._managers) > 1:
            self._in_groups = {name: self._group_tables(name) for name in tables} | deferred
        self._tables, self._held = tables, held
        return held

    def _group_tables(self, name: str) -> list[list[int]]:
        managers = self._managers[1:]
        return [[block.block_id for block in m.req_to_blocks.get(name, ())] for m in managers]

    def group_blocks(self, names: Iterable[str]) -> dict[str, list[list[int]]]:
        """Return the blocks in all groups but the first, as of the last call to `blocks`."""
        return {name: self._in_groups.get(name, []) for name in names}

    @property
    def _managers(self) -> tuple[Any, ...]:
        managers: tuple[Any, ...] = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        return managers

    def forget(self, name: str) -> None:
        self.hits.pop(name, None)
        self.flights.forget(name)

    def free_blocks(self) -> int:
        """Return the number of blocks that no request holds, including cached blocks."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


NULL = 0  # the number of the null block
FIELDS = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
FIELDS += ["computed", "blocks"]
# The queues of waiting requests, in the order in which they are served. Some releases keep requests
# that wait for a remote cache, an adapter or a grammar in a separate queue.
QUEUES = ("skipped_waiting", "kv_holding_waiting", "waiting")


def observed_fields(engine: SchedulerView) -> list[str]:
    fields = [*FIELDS]
    if not engine.config.get(sessions.KEY):  # vLLM receives further turns as new requests
        fields.append("sent")
    if engine.config["enable_prefix_caching"]:
        fields.append("prefix_hit")
    if engine.config["num_blocks"] is not None:
        fields.append("free_blocks")
    if engine.flights.most > 1:
        fields.append("emitted_at")
    if shows_parked(engine.config):
        fields.append("parked")
    if engine.config.get(encoder.BUDGET):
        fields += ["encoder_inputs", "encoder_dropped"]
    if groups.after_first(engine.config):
        fields.append("group_blocks")
    if engine.published is not None:
        fields.append("cache_events")
    if engine.config.get(grammars.KEY):
        fields += ["masks", "grammars"]
    return fields


def shows_parked(config: Mapping[str, Any]) -> bool:
    return bool(config.get("kv_connector") or config.get(sessions.KEY))


class Decided(NamedTuple):
    """The visible parts of a decision that has not completed yet."""

    kind: str
    scheduled: dict[str, int]
    preempted: list[str]
    encoder: dict[str, Any]
    sent: dict[str, Any]


def look_before(engine: SchedulerView) -> dict[str, int]:
    return {request.request_id: request.num_preemptions for request in engine.scheduler.running}


def look_at(engine: SchedulerView, before: dict[str, int], decision: Any) -> Decided:
    """Return the visible parts of a decision that has not completed yet. Record the prefix hits of
    admitted requests.

    `before` is the result of calling `look_before` before the decision.
    """
    requests, scheduled = engine.requests, dict[str, int](decision.num_scheduled_tokens)
    # The scheduler counts the tokens of this step as computed once it has decided.
    start = {
        name: requests[name].num_computed_tokens - tokens for name, tokens in scheduled.items()
    }
    decodes = {decodes_at(engine, requests[name], computed) for name, computed in start.items()}
    preempted = [name for name, count in before.items() if requests[name].num_preemptions > count]
    # A request that joins has not computed anything itself, so its computed tokens were cached.
    engine.hits |= {name: start[name] for name in scheduled if name not in before}
    seen = encoder.encoder_fields(decision, engine.encoded)
    sent = worker.message_to_worker(engine.scheduler, decision, engine.encoded)
    return Decided(kind_of(decodes), scheduled, preempted, seen, sent)


def decodes_at(engine: SchedulerView, request: Any, computed: int) -> bool:
    """Return whether only the last sampled token remains to be computed. Cached tokens count as
    `computed`."""
    coming = engine.flights.tokens_in_flight(request.request_id)
    behind: int = request.num_tokens + coming - computed
    return behind == 1 and request.num_output_tokens + coming > 0


def observe(
    engine: SchedulerView,
    decided: Decided,
    completion: Any,
    aborted: list[str],
    first: dict[str, int],
    completes: bool = True,
) -> dict[str, Any]:
    """Return the step in the form of the protocol. `first` contains the position of each
    request's first new token; `completes` says whether a decision completes."""
    scheduler, running = engine.scheduler, engine.scheduler.running
    waiting = [request for queue in QUEUES for request in getattr(scheduler, queue, ())]
    if engine.config["policy"] == "priority":
        # vLLM compares the requests at the heads of the queues, and takes the more important one.
        waiting.sort()
    seen: dict[str, Any] = {
        "kind": decided.kind,
        "scheduled": decided.scheduled,
        "waiting": ids(waiting),
        "running": ids(running),
        "prefilling": [
            request.request_id
            for request in running
            if not decodes_at(engine, request, request.num_computed_tokens)
        ],
        "preempted": decided.preempted,
        "computed": non_empty(
            {
                name: request.num_computed_tokens
                for name, request in engine.requests.items()
                if not request.is_finished()  # even if a load still writes to its blocks
            }
        ),
        "blocks": engine.blocks(),
        **outputs(completion, aborted),
    }
    if not engine.config.get(sessions.KEY):
        seen["sent"] = decided.sent
    if shows_parked(engine.config):
        seen["parked"] = [name for name in seen["waiting"] if name in seen["blocks"]]
    if engine.config["enable_prefix_caching"]:
        # A session may begin and end a turn in one step.
        parked = seen["parked"] if engine.config.get(sessions.KEY) else ()
        started = [name for name in parked if name in decided.scheduled]
        hits = {name: engine.hits[name] for name in (*seen["running"], *started)}
        seen["prefix_hit"] = non_empty(hits)
    if engine.config["num_blocks"] is not None:
        seen["free_blocks"] = engine.free_blocks()
    if engine.flights.most > 1:
        # A release may emit a token that it computed for an earlier request with the same id, or
        # for an earlier turn of the session.
        seen["emitted_at"] = {name: max(first.get(name, 0), 0) for name in seen["emitted"]}
    if engine.config.get(encoder.BUDGET):
        seen |= decided.encoder
    if groups.after_first(engine.config):
        seen["group_blocks"] = engine.group_blocks(seen["blocks"])
    if engine.published is not None:
        seen["cache_events"] = engine.published.take(completes)
    if engine.config.get(grammars.KEY):
        seen["masks"] = engine.grammars.masks
        seen["grammars"] = engine.grammars.accepted(seen["emitted"])
    for name in seen["finished"]:
        if name not in engine.requests:  # unless a new request has the same id
            engine.forget(name)
    return seen


def non_empty(amounts: dict[str, int]) -> dict[str, int]:
    """Return the amounts above 0. In a release with the known bug V15, the count of computed tokens
    can fall below 0."""
    return {name: amount for name, amount in amounts.items() if amount > 0}
