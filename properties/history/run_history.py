"""What the client of a scheduler knows: what it asked for, and what it has seen so far."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.observation import Step
from ...model.scenario import Request
from ..vllm.history import encoder, in_flight, loads, speculation
from . import inference as not_shown
from . import prefix_hits as hits
from .bounds import bounds_of
from .content import in_common
from .eviction import Ended
from .per_step_cache import once
from .prefix_hits import caches
from .request_history import RequestHistory
from .shadow_cache import Changes, ShadowCache
from .shared_prefixes import Kin

# In other revisions a request that decodes does so in every decode step.
REVISIONS_THAT_PAUSE = frozenset({"2.5.2"})
Phases = tuple[list[RequestHistory], list[RequestHistory], list[RequestHistory]]


@dataclass
class RunHistory:
    """The run up to now. Predicates read it as it was *before* the step that they judge.

    Attributes:
        config: every key of the system's configuration.
        revision, system: what the target is held to, and the system of the scheduler.
        defaults: by configuration key, what the target says that its absence means.
        paused: held back since the step before, where the revision knows that.
        requests: accepted requests by id, in order of arrival; where the history `forgets`, without
            those that have ended and of which no block holds anything; `forgotten` counts them.
        aborts_to_report: aborted since the last step, with the next step to report them.
        aborts_inside: to be aborted inside the coming step.
        last: the step before, None before the first.
        step: number of the coming step, from 0.
        barren_steps: steps in a row in which an unfinished request waited and nothing was computed.
        busy_steps: steps so far in which an accepted request was unfinished.
        first_in_line: the request that has waited longest unstarted, since which step, and the
            steps that the work in front of it can take at most.
        flights: decisions that are on their way, the oldest first.
        early: steps in a row in which a decision has just completed early.
        outputs: of an encoder, that the worker has, with their tokens.
        shadow: what the blocks hold, where a rule asks for it.
        answers: what was asked `once` since the last change, of which step and configuration.
    """

    config: Mapping[str, Any]
    revision: str = ""
    system: str = "spyre"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    requests: dict[str, RequestHistory] = field(default_factory=dict)
    live: dict[str, RequestHistory] = field(default_factory=dict)
    aborts_to_report: set[str] = field(default_factory=set)
    aborts_inside: set[str] = field(default_factory=set)
    last: Step | None = None
    last_was_prefill: bool = False
    step: int = 0
    busy_steps: int = 0
    barren_steps: int = 0
    work: int = 0
    first_in_line: tuple[str, int, int] | None = None
    forgets: bool = False
    forgotten: int = 0
    flights: tuple[in_flight.Flight, ...] = ()
    early: int = 0
    outputs: Mapping[str, int] = field(default_factory=dict)
    shadow: ShadowCache | None = None
    answers: dict[Any, tuple[Step | None, Any, Any]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _ended: Ended = field(default_factory=Ended)
    _kin: Kin = field(init=False, repr=False, compare=False)
    _members_of: Step | None = None
    _sorted_members: tuple[list[RequestHistory], list[RequestHistory]] = field(default=([], []))
    _sorted_phases: Phases | None = None

    def __post_init__(self) -> None:
        self._kin = Kin(self.requests.values())

    def accept(self, request: Request, *, open_ended: bool = False) -> None:
        """The target took the request; `open_ended`: how much it generates is not known yet."""
        account = RequestHistory.of(request, self.arrived, open_ended)
        beyond = bounds_of(self.system).beyond
        account.beyond = beyond(self.config, request.prompt_len, request.max_tokens)
        account.beyond |= encoder.beyond(self.config, account.inputs)
        self._kin.add(account, instead_of=self.requests.get(request.id))
        self.requests[request.id] = self.live[request.id] = account
        self.work += bounds_of(self.system).alone(self.config, account)
        self._changed()
        self._note_first_in_line()

    def abort(self, request_id: str, inside: bool) -> None:
        """The target took an abort; ids that are unknown or finished change nothing."""
        if request_id not in self.live:
            return
        if inside:
            self.aborts_inside.add(request_id)
            self._changed()
        else:
            self.aborts_to_report.add(request_id)
            self._end(request_id, "aborted")
            self._note_first_in_line()

    def give_up(self, step: Step) -> None:
        """Requests that can never run, and that the target ends in this step, unscheduled, are as
        good as aborted before it: no other request waits for them."""
        for name in step.finished or ():
            account = self.live.get(name)
            if account is not None and account.beyond and name not in step.scheduled:
                self.abort(name, inside=False)

    def prefill_members(self, step: Step) -> list[RequestHistory]:
        """Scheduled requests whose prompt was not fully computed before the step."""
        if self._members_of is not step:
            self._sort_members(step)
        return self._sorted_members[0]

    def decode_members(self, step: Step) -> list[RequestHistory]:
        """Scheduled requests whose prompt was fully computed before the step."""
        if self._members_of is not step:
            self._sort_members(step)
        return self._sorted_members[1]

    def unstarted(self) -> list[RequestHistory]:
        """Unfinished requests of which nothing is computed yet, in order of arrival."""
        return (self._sorted_phases or self._sort_phases())[0]

    def ongoing(self) -> list[RequestHistory]:
        """Unfinished requests between their first and their last chunk."""
        return (self._sorted_phases or self._sort_phases())[1]

    def decoding(self) -> list[RequestHistory]:
        """Unfinished requests whose prompt is fully computed and which are not paused, in order of
        arrival."""
        return (self._sorted_phases or self._sort_phases())[2]

    def running(self) -> list[RequestHistory]:
        """Unfinished requests that have started and are not paused."""
        return self.ongoing() + self.decoding()

    def hit_now(self, step: Step, account: RequestHistory) -> int | None:
        """Tokens that a request finds when it starts in this step: 0 later; None if not known."""
        return hits.found(self.config, step, account, account.id in self.aborts_inside)

    @property
    def arrived(self) -> int:
        """Requests that were accepted so far."""
        return len(self.requests) + self.forgotten

    @property
    def max_steps(self) -> int:
        """Steps that all accepted requests together can take at most."""
        return bounds_of(self.system).together(self.config, self.work, self.arrived)

    def observe(self, step: Step) -> None:
        """Book a step after it was judged."""
        changes = self.cache_changes(step)
        if self.shadow is not None and changes is not None:
            self.shadow.book(step, changes)
        if step.encoder_inputs is not None:
            self.outputs = self.outputs_after(step)
        loads.book(self.config, self.requests, self.flights, self.early, step, self.step)
        if not self.live or loads.under_way(self.config, self.requests.values(), step):
            self.barren_steps = 0
        else:
            self.busy_steps += 1
            self.barren_steps = 0 if any(step.scheduled.values()) else self.barren_steps + 1
        self.last_was_prefill = bool(self.prefill_members(step))
        speculates, several = speculation.drafts(self.config), in_flight.depth(self.config) > 1
        for name in step.preempted or ():
            if name in self.live:
                self._rewind(self.live[name])
        for name, tokens in step.scheduled.items():
            account = self.requests.get(name)
            if account is None:
                continue
            hit = self._hit(step, account)
            if not account.prefilled:
                account.prefill_steps += 1
            if not account.started:
                account.began = self.step
            account.prefix_hit += hit
            account.computed += hit + tokens
            if account.brings:
                loads.begin(account, step, int(self.config["block_size"]))
            if speculates:
                speculation.compute(self.config, account, account.began == self.step)
        flights = in_flight.set_off(self.config, self.flights, self.early, self.requests, step)
        self.flights, self.early, over = flights
        emitted = step.emitted
        if emitted is None:
            stay = {n: one for n, one in self.live.items() if n not in self.aborts_inside}
            emitted = not_shown.emissions(stay, over)
        for name, tokens in emitted.items():
            account = self.requests.get(name)
            if account is not None:
                account.emitted += tokens
                coming = over.get(name, in_flight.NOTHING)
                if several:
                    in_flight.deliver(account, tokens, coming)
                if speculates and tokens:
                    speculation.verify(self.config, account, coming.proposed)
        if self.revision in REVISIONS_THAT_PAUSE:
            self.paused = frozenset(step.paused or ())
            for one in self.live.values():
                one.paused_steps = one.paused_steps + 1 if one.id in self.paused else 0
        finished = not_shown.endings(self.live.values()) if step.finished is None else step.finished
        for name, reason in finished.items():
            self._end(name, reason)
        for name in self.aborts_inside:
            self._end(name, "aborted")
        self.aborts_inside, self.aborts_to_report = set(), set()
        self.last = step
        self.step += 1
        self._changed()
        self._note_first_in_line()
        if self.forgets:
            self._forget(step)

    @once
    def cache_changes(self, step: Step) -> Changes | None:
        """What the step does to the cache; None where no rule asks for it."""
        return None if self.shadow is None else self.shadow.changes(self, step)

    @once
    def encoded(self, step: Step) -> list[tuple[RequestHistory, encoder.Input]]:
        """The encoder inputs that are computed in a step, each with the request it is for."""
        numbers = step.encoder_inputs or {}
        requests = [self.live[name] for name in numbers if name in self.live]
        return [(r, one) for r in requests for one in r.inputs if one.number in numbers[r.id]]

    @once
    def outputs_after(self, step: Step) -> Mapping[str, int]:
        """The outputs of an encoder that the worker has while it computes the step."""
        return encoder.after(self.outputs, step, [one for _, one in self.encoded(step)])

    def reached(self, step: Step, account: RequestHistory) -> int:
        """Tokens of a request that were ever computed by the end of the step, at most."""
        if account.started and not_shown.restarts(self.system, step):
            return account.num_tokens
        if account.id not in step.scheduled:
            landed = account.brings if not loads.loading(account) else 0
            return max(account.max_computed, landed)
        tokens = self._hit(step, account) + step.scheduled[account.id]
        return max(account.max_computed, account.computed + tokens)

    def _hit(self, step: Step, account: RequestHistory) -> int:
        """The hit of a request in this step; where it is not shown, a bound."""
        shown = self.hit_now(step, account)
        if shown is not None:
            return shown
        left = account.num_tokens - step.scheduled[account.id]
        return min(self.max_hit(step, account), left)

    def kin(self, one: RequestHistory) -> Collection[RequestHistory]:
        """The requests that can have tokens in common with this one, itself included."""
        return self._kin.of(one)

    def max_hit(self, step: Step, account: RequestHistory) -> int:
        """A bound on the hit: what others have computed of it by the end of the step."""
        found = 0
        for other in self.kin(account):
            computed = other.max_computed
            if other is not account:
                unseen = not other.started and self.hit_now(step, other) is None
                whole = unseen and other.id in step.scheduled
                computed = other.num_tokens if whole else self.reached(step, other)
            if computed:
                shared = in_common(account, other)
                found = max(found, min(shared, computed))
        return found

    def _sort_members(self, step: Step) -> None:
        """Prefill and decode members of the step, sorted out once for all predicates."""
        prefills: list[RequestHistory] = []
        decodes: list[RequestHistory] = []
        for name in step.scheduled:
            one = self.live.get(name)
            if one is not None:
                (decodes if one.prefilled else prefills).append(one)
        self._members_of = step
        self._sorted_members = (prefills, decodes)

    def _sort_phases(self) -> Phases:
        """Unstarted, ongoing and decoding requests, sorted out once between two changes."""
        unstarted: list[RequestHistory] = []
        ongoing: list[RequestHistory] = []
        decoding: list[RequestHistory] = []
        for one in self.live.values():
            if one.id in self.paused:
                continue
            if not one.started:
                unstarted.append(one)
            elif one.prefilled:
                decoding.append(one)
            else:
                ongoing.append(one)
        self._sorted_phases = (unstarted, ongoing, decoding)
        return self._sorted_phases

    def _changed(self) -> None:
        """What was sorted out does not hold any more."""
        self._sorted_phases = None
        self._members_of = None
        self.answers.clear()

    def _end(self, name: str, reason: str) -> None:
        account = self.live.pop(name, None)
        self._changed()
        if account is not None:
            account.ended, account.over = reason, self.step
            loads.left(account)
            if self.forgets:
                self._ended.add(name)

    def _forget(self, step: Step) -> None:
        """Forget the requests that no rule asks for any more."""
        cached = caches(self.config)
        if cached and self.shadow is None:
            return
        for name in self._ended.not_needed(step.blocks or {}, self.shadow if cached else None):
            if name not in self.live and (account := self.requests.pop(name, None)) is not None:
                self._kin.remove(account)
                self.forgotten += 1

    def _note_first_in_line(self) -> None:
        unstarted = self.unstarted()
        first = unstarted[0] if unstarted else None
        if first is None:
            self.first_in_line = None
        elif self.first_in_line is None or self.first_in_line[0] != first.id:
            started = [one for one in self.live.values() if one.started]
            allowance = bounds_of(self.system).waits(self.config, first, started)
            self.first_in_line = None if allowance is None else (first.id, self.step, allowance)

    @staticmethod
    def _rewind(account: RequestHistory) -> None:
        """A request has lost what was computed: all its tokens are to be computed again."""
        account.lost = account.max_computed
        account.regenerated = account.emitted
        account.computed = account.prefix_hit = account.drafted = account.slots = 0
        account.promised = account.hoped = account.brings = 0
        account.preemptions += 1
