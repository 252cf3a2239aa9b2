"""The features of vLLM's runs that the kernel does not have: steps in flight, drafts, loads,
encoder outputs.

Each feature has its own file, which is used only if the configuration has the feature.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ....model.observation import Step
from ....model.scenario import Request
from ...history import prefix_hits
from ...history.features import Features
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from . import (
    blocked,
    cache_events,
    cadence,
    encoder,
    given_back,
    given_back_in_groups,
    groups,
    in_flight,
    kept_in_groups,
    loads,
    partitions,
    sessions,
    speculation,
    synchronous,
)
from .request_history import VllmRequestHistory
from .run import (
    NOTHING,
    Coming,
    VllmState,
    groups_after,
    of,
    outputs_after,
    requests_of,
    routing_after,
    state_of,
    worker_after,
)

Config = Mapping[str, Any]


class VllmFeatures(Features):
    """Adds connectors, drafts, steps in flight and encoders."""

    request_history = VllmRequestHistory

    def caches_output(self, revision: str) -> bool:
        """Return True for releases. According to the chunked-prefill chapter, generated tokens
        cannot be cached."""
        return revision != "documented"

    def initial(self) -> VllmState:
        return VllmState()

    def can_never_run(self, config: Config, request: Request) -> bool:
        return encoder.beyond(config, encoder.inputs_of(request))

    def as_sent(self, config: Config, request: Request) -> Request:
        if not speculation.drafts(config):
            request = replace(request, accepted=())
        if not partitions.are_possible(config):
            request = replace(request, cache_salt=None, lora=None)
        if not blocked.can_be(config):
            request = blocked.without_grammars(request)
        elif not speculation.drafts(config):
            request = replace(request, grammar_drafts=())
        if not sessions.are_held(config):
            request = replace(request, turns=())
        if loads.are_synchronous(config) or loads.has_too_little(config, request):
            request = replace(request, load_steps=0)
        if request.tool_steps:
            request = replace(request, tool_steps=0)
        if not self.reuses_ids(config):
            request = replace(request, sent_as=None)
        return request if loads.are_made(config) else request.without_connector()

    def reuses_ids(self, config: Config) -> bool:
        return bool(config.get("reused_ids"))

    def of_requests(self, config: Config, requests: Sequence[Request]) -> dict[str, bool]:
        occurs = {}
        if loads.are_made(config):
            occurs["failed load"] = any(request.load_fails_at is not None for request in requests)
        if blocked.can_be(config):
            occurs["grammar"] = any(request.grammar_steps for request in requests)
            occurs["invalid grammar"] = any(request.grammar_fails for request in requests)
        if sessions.are_held(config):
            occurs["session"] = any(request.turns for request in requests)
        return occurs

    def follows(self, config: Config) -> tuple[str, ...]:
        """Return the fields that show three things: which requests wait for a load, which end
        because of a load or an invalid grammar, and where a session's turn ends."""
        loading = ("parked", "finished") if loads.are_made(config) else ()
        turns = ("parked", "emitted", "preempted") if sessions.are_held(config) else ()
        return (*loading, *turns, *(("finished",) if blocked.can_be(config) else ()))

    def may_forget(self, config: Config) -> bool:
        """Return whether the cache finds an ended request's tokens only as long as a block contains
        them."""
        if not prefix_hits.caches(config):
            return True
        return in_flight.depth(config) == 1 and not loads.are_made(config)

    def depth(self, config: Config) -> int:
        return in_flight.depth(config)

    def completing(self, history: RunHistory[Any], step: Step) -> Container[str]:
        return in_flight.completes(history, step)

    def hit(self, history: RunHistory[Any], step: Step, account: RequestHistory) -> int | None:
        """Return how many tokens a request finds in the cache or has loaded, or None if the number
        is unknown."""
        config, request = history.config, of(account)
        if synchronous.loads_blindly(history, step, request):
            return loads.offered(config, request)
        if not account.started and request.tokens_loading and account.id in step.scheduled:
            known = request.load_fails_at is None or not prefix_hits.caches(config)
            if known:
                return loads.tokens_at_start(config, request)
        aborted = account.id in history.aborts_inside
        drafts = speculation.drafts(config)  # some releases pad a request that joins
        pads = drafts > 0 and step.scheduled.get(account.id) == 1 + drafts
        found = prefix_hits.tokens_hit(config, step, account, aborted, pads=pads)
        if found is None and loads.are_synchronous(config):
            return synchronous.loads_surely(history, step, request)
        return found

    def reached(self, history: RunHistory[Any], account: RequestHistory) -> int:
        request = of(account)
        has_landed = request.ended is not None or not loads.loading(request)
        landed = request.tokens_loading if has_landed else 0
        return max(account.max_computed, landed)

    def loads_in(self, history: RunHistory[Any], step: Step) -> list[tuple[RequestHistory, int]]:
        """Return the requests whose load begins, each with the number of tokens that it loads
        successfully."""
        if loads.are_synchronous(history.config):
            new = synchronous.load_now(history, step)
            return [(request, loads.offered(history.config, request)) for request in new]
        if not step.parked:
            return []
        new = [history.live[name] for name in loads.newly_parked(requests_of(history.live), step)]
        brought = [(request, loads.tokens_loaded(history.config, of(request))) for request in new]
        return [(request, tokens) for request, tokens in brought if tokens]

    def take_unseen(self, history: RunHistory[Any], step: Step) -> bool:
        return loads.take_unseen(history, step)

    def may_lose_tokens(
        self, history: RunHistory[Any], step: Step, account: RequestHistory
    ) -> bool:
        return of(account).went_back or account.id in synchronous.may_fall_back(history, step)

    def place_unknown(self, account: RequestHistory) -> bool:
        return loads.place_unknown(of(account))

    def right_drafts(
        self, history: RunHistory[Any], step: Step, account: RequestHistory, tokens: int
    ) -> int | None:
        request = of(account)
        right = speculation.correct_in_step(history.config, request, step, tokens)
        return right if request.drafted or right else None

    def may_compute_nothing(self, history: RunHistory[Any], step: Step) -> bool:
        """Return whether one of three things holds: a load is in progress or has just failed; every
        request waits for its grammar; a session waits for its next input."""
        if sessions.are_held(history.config):
            return bool(sessions.awaiting(requests_of(history.live)))
        return loads.under_way(
            history.config, requests_of(history.requests).values(), step
        ) or blocked.all_are(history.config, requests_of(history.live).values())

    def may_end_early(self, history: RunHistory[Any], account: RequestHistory) -> bool:
        """Return whether a failed load or an invalid grammar ends the request (V1-R28, V1-R43)."""
        request = of(account)
        return request.invalid or loads.ends_on_failure(history.config, request)

    def goes_on(self, account: RequestHistory) -> bool:
        return bool(of(account).turns)

    def idle_steps(self, history: RunHistory) -> int:
        """Return how many steps may be idle while the pipeline fills up or because the connector
        has not answered. Requests that have ended since the first of these steps may have waited as
        well."""
        since = history.step - history.barren_steps
        waits = loads.deferrals(
            of(request)
            for request in history.requests.values()
            if request.ended_at is None or request.ended_at >= since
        )
        return self.depth(history.config) + waits

    def steps_after_end(self, history: RunHistory[Any]) -> int:
        if history.live:
            return 0
        ended = history.requests.values() if loads.are_made(history.config) else ()
        left = max((of(request).load_left for request in ended), default=0)
        return left + in_flight.depth(history.config) - 1

    def held_after_end(self, config: Config) -> bool:
        """Return whether requests that have ended may keep blocks until a load has finished or the
        blocks are sent."""
        return loads.are_made(config)

    def free_is_unknown(self, history: RunHistory) -> bool:
        """Return whether a failed load or an abort may have freed blocks.

        Blocks of requests that were just aborted are free, unless a load or a decision in flight
        writes to them. Those of a failed load become free when the scheduler next considers the
        request.
        """
        if not loads.are_made(history.config):
            return False
        failed = any(loads.has_failed(of(request)) for request in history.live.values())
        return bool(history.aborts_to_report) or failed

    def is_sent(self, account: RequestHistory) -> bool:
        return loads.is_sent(of(account))

    def slots(self, config: Config, covered: int) -> int:
        return speculation.slots(config, covered)

    def reset(self, history: RunHistory[Any]) -> None:
        history.system_state = state_of(history)._replace(
            was_reset=True, kept={}, given_back={}, returned={}
        )
        for account in history.requests.values():
            of(account).since_reset = 0

    def dropped(self, history: RunHistory[Any]) -> None:
        in_flight.drop_running(history)

    def begin(self, history: RunHistory[Any], step: Step) -> None:
        if cadence.is_kept(history.config):
            steps = cadence.after(history, step)
            history.system_state = state_of(history)._replace(cadence=steps)
        if cache_events.are_published(history.config):
            routing = routing_after(history, step)
            history.system_state = state_of(history)._replace(routing=routing)
        if step.encoder_inputs is not None:
            outputs = outputs_after(history, step)
            history.system_state = state_of(history)._replace(outputs=outputs)
        config = history.config
        if step.group_blocks is not None and (
            prefix_hits.caches(config) or groups.has_mamba(config)
        ):
            known = groups_after(history, step)
            history.system_state = state_of(history)._replace(groups=known)
            if kept_in_groups.are_followed(config):
                kept = kept_in_groups.after(history, step, state_of(history).kept)
                history.system_state = state_of(history)._replace(kept=kept)
        if given_back.are_followed(config):
            still = given_back.after(history, step, state_of(history).given_back)
            if still is not state_of(history).given_back:
                history.system_state = state_of(history)._replace(given_back=still)
        if given_back_in_groups.are_followed(config):
            returned = given_back_in_groups.after(history, step, state_of(history).returned)
            history.system_state = state_of(history)._replace(returned=returned)
        if step.sent is not None:
            holds = worker_after(history, step)
            if step.sent.drafts is not None and step.sent.computed:
                proposed = frozenset(step.sent.computed)
                history.system_state = state_of(history)._replace(proposed=proposed)
            if holds is not state_of(history).worker:
                history.system_state = state_of(history)._replace(worker=holds)
        if loads.are_synchronous(history.config):
            synchronous.book(history, step)
        if loads.are_made(history.config):
            loads.book(history, step)

    def computed(self, history: RunHistory[Any], step: Step, account: RequestHistory) -> None:
        """Record when a request was admitted, the tokens that a load brought, and the slots taken
        by drafts."""
        request = of(account)
        if account.began == history.step:
            request.began_at = [*step.scheduled].index(account.id)
        request.since_reset = max(request.since_reset, request.computed)
        if request.between_turns:
            request.between_turns = request.aside = False
        if request.tokens_loading:
            loads.begin(request, step, int(history.config["block_size"]))
        if speculation.drafts(history.config):
            speculation.compute(history.config, request, account.began == history.step)

    def decided(self, history: RunHistory[Any], step: Step) -> Mapping[str, Coming]:
        return in_flight.record_decision(history, step)

    def emissions(
        self, history: RunHistory[Any], step: Step, completes: Mapping[str, Coming]
    ) -> dict[str, int]:
        """Return how many tokens each request emits: one, plus one for each correct draft. Leave
        out requests that emit none."""
        return {
            name: min(
                1 + speculation.correct_of(of(request), coming.proposed),
                max(request.tokens_left, 1),
            )
            for name, coming in completes.items()
            if (request := history.live.get(name)) is not None
            and name not in history.aborts_inside
            and of(request).falls_to is None
        }

    def emitted(
        self, account: RequestHistory, tokens: int, completes: Mapping[str, Coming], config: Config
    ) -> None:
        """Record that tokens have arrived, and that drafts are verified."""
        coming = completes.get(account.id, NOTHING)
        if self.depth(config) > 1:
            in_flight.deliver(of(account), tokens, coming)
        if tokens and speculation.drafts(config):
            request, known = of(account), account.emitted - tokens
            proposed = speculation.fitting(request, known, coming.proposed)
            speculation.verify(config, request, proposed, coming.requests)

    def end(self, history: RunHistory[Any], step: Step) -> bool:
        if loads.are_synchronous(history.config):
            synchronous.fall_back(history, step)
        if blocked.can_be(history.config) and not sessions.are_held(history.config):
            blocked.step(requests_of(history.live).values())
        if in_flight.turn(history.config):
            in_flight.rest(history)
        if in_flight.holds_grammars(history.config):
            in_flight.hold_grammars(history)
        if sessions.are_held(history.config):
            live = requests_of(history.live)
            names = live.keys() - history.aborts_inside
            ended = sessions.step([live[name] for name in names], history.step)
            if in_flight.depth(history.config) > 1:
                in_flight.drop(history, ended)
            return bool(ended)
        return False

    def ended(self, account: RequestHistory) -> None:
        loads.note_end(of(account))


FEATURES = VllmFeatures()
