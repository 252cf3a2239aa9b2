"""The client's view of a run: the requests that it sent, and its observations so far."""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from msgspec.structs import replace
from typing_extensions import TypeVar

from ...model.observation import Step
from ...model.scenario import Request
from .bounds import bounds_of
from .content import in_common
from .features import Features, features_of
from .holders import Holders
from .kept_prefixes import KeptPrefixes
from .per_step_cache import once
from .prefix_hits import caches
from .request_history import RequestHistory
from .shadow_cache import Changes, ShadowCache
from .shared_prefixes import SharedPrefixes

# The pause that each control event causes or ends. An engine that sleeps schedules nothing.
PAUSES = {
    **{"pause_new": "pause_new", "pause_all": "pause_all", "resume": None},
    **{"sleep": "pause_all", "wake_up": None},
}
RESETS_OF_RUNNING = ("reset_running_requests", "sleep")
RESETS = ("reset_prefix_cache", *RESETS_OF_RUNNING)
# Fields of a step that list what each request has computed and holds.
KEYED = ("computed", "prefix_hit", "blocks")
R = TypeVar("R", bound=RequestHistory, default=RequestHistory)


class ControlEvent(NamedTuple):
    """A control event before the coming step.

    The fields are the kind of the event, whether the target carried it out, the requests that were
    running, and those that held blocks. The last two are None if the target does not show them.
    """

    kind: str
    done: bool
    running: tuple[str, ...] | None
    holding: tuple[str, ...] | None


def makes_progress(step: Step) -> bool:
    """Return whether a step computes or emits a token, or ends a request. A step can emit a token
    without computing any, because a hit may cover a whole prompt."""
    ends = any(reason != "aborted" for reason in (step.finished or {}).values())
    return ends or any((step.emitted or {}).values()) or any(step.scheduled.values())


@dataclass
class Ended:
    """Requests that have ended but cannot be forgotten yet.

    Attributes:
        listed: requests whose blocks the target may still list.
        cached: requests with tokens that some blocks may still hold.
    """

    listed: list[str] = field(default_factory=list)
    cached: set[str] = field(default_factory=set)

    def add(self, name: str) -> None:
        self.listed.append(name)

    def not_needed(self, holding: Container[str], shadow: ShadowCache | None) -> list[str]:
        """Return the requests that can be forgotten after a step. Those in `holding` still hold
        blocks.

        Without a shadow cache, only requests that hold blocks are needed.
        """
        unlisted = [name for name in self.listed if name not in holding]
        if unlisted:
            self.listed = [name for name in self.listed if name in holding]
        if shadow is None:
            return unlisted
        gone = [name for name in unlisted if not shadow.knows(name)]
        self.cached.update(unlisted)
        gone += [name for name in shadow.lost if name in self.cached]
        shadow.lost.clear()
        self.cached.difference_update(gone)
        return gone


@dataclass
class RunHistory(Generic[R]):
    """The run up to now. Predicates read it as it was *before* the step that they judge.

    Attributes:
        config: every key of the system's configuration.
        revision, system: the revision that judges the target, and its system.
        defaults: for each configuration key, the value that the target uses if the key is absent.
        paused: requests that were paused after the previous step, if the system pauses requests.
        requests: accepted requests by id, in order of arrival. If the history `forgets`, ended
            requests are dropped once no block holds their tokens; `forgotten` counts them.
        arrived_again: how often a request was moved to the end of the order of arrival.
        aborts_to_report: requests aborted since the last step, which the next step reports.
        aborts_inside: requests that will be aborted inside the coming step.
        events: control events since the last step.
        pause: "pause_new" or "pause_all" while an operator holds the scheduler back.
        pause_steps: the number of consecutive steps in which a paused scheduler scheduled nothing.
        last: the previous step; None before the first.
        step: number of the coming step, from 0.
        barren_steps: the number of consecutive steps that made no progress while a request was
            unfinished.
        busy_steps: number of steps so far in which an accepted request was unfinished.
        first_in_line: the unstarted request that has waited longest, the step in which it became
            first, and the largest number of steps that the work ahead of it can take.
        system_state: the state of the system's features, one immutable value.
        shadow: the content of the blocks, if a rule needs it.
        kept: the prefixes that a cache must still find; None if no rule needs them.
        client_changes: number of arrivals, aborts, control events and ends so far.
        moves: a count that grows whenever a request may have passed from one phase to another.
        holders: counts the blocks that requests hold.
        answers: the results that `once` has cached since the last change, with their step and
            configuration.
    """

    config: Mapping[str, Any]
    revision: str
    system: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    requests: dict[str, R] = field(default_factory=dict)
    live: dict[str, R] = field(default_factory=dict)
    aborts_to_report: set[str] = field(default_factory=set)
    aborts_inside: set[str] = field(default_factory=set)
    events: tuple[ControlEvent, ...] = ()
    pause: str | None = None
    pause_steps: int = 0
    last: Step | None = None
    last_was_prefill: bool = False
    step: int = 0
    busy_steps: int = 0
    barren_steps: int = 0
    work: int = 0
    first_in_line: tuple[str, int, int] | None = None
    forgets: bool = False
    forgotten: int = 0
    arrived_again: int = 0
    system_state: Any = None
    shadow: ShadowCache | None = None
    kept: KeptPrefixes | None = None
    client_changes: int = field(default=0, repr=False, compare=False)
    moves: int = field(default=0, repr=False, compare=False)
    holders: Holders = field(default_factory=Holders, repr=False, compare=False)
    answers: dict[Any, tuple[Step | None, Any, Any]] = field(
        default_factory=dict, repr=False, compare=False
    )
    features: Features = field(init=False, repr=False, compare=False)
    _ended: Ended = field(default_factory=Ended)
    _kin: SharedPrefixes[R] = field(init=False, repr=False, compare=False)
    _members_of: Step | None = None
    _sorted_members: tuple[list[R], list[R]] = field(default=([], []))
    _sorted_phases: tuple[list[R], list[R], list[R]] | None = None

    def __post_init__(self) -> None:
        self.features = features_of(self.system)
        if self.system_state is None:
            self.system_state = self.features.initial()
        block = int(self.config.get("block_size", 1))
        self._kin = SharedPrefixes(self.requests.values(), block)

    def accept(self, request: Request, *, open_ended: bool = False) -> None:
        """Record a request that the target accepted. With `open_ended`, its output length is not
        known yet."""
        account: Any = self.features.request_history.of(request, self.arrived, open_ended)
        beyond = bounds_of(self.system).beyond
        account.never_runnable = beyond(self.config, *request.whole)
        account.never_runnable |= self.features.can_never_run(self.config, request)
        self._kin.add(account, instead_of=self.requests.get(request.id))
        is_new = request.id not in self.live and request.id not in self.paused
        self.requests[request.id] = self.live[request.id] = account
        self.work += bounds_of(self.system).alone(self.config, account)
        phases = self._sorted_phases
        self._changed()
        if phases is not None and is_new:  # the phases of the others stay the same
            phases[0].append(account)
            self._sorted_phases = phases
        self._note_first_in_line()

    def abort(self, request_id: str, inside: bool) -> None:
        """Record that a client aborted the request, or will abort it `inside` the coming step. The
        id of an unknown or finished request has no effect."""
        if request_id not in self.live:
            return
        if inside:
            self.aborts_inside.add(request_id)
            self._changed()
        else:
            self.aborts_inside.discard(request_id)
            self.aborts_to_report.add(request_id)
            self._end(request_id, "aborted")
            self._note_first_in_line()

    def control(self, kind: str, done: bool) -> None:
        running, shown = ((), {}) if self.last is None else (self.last.running, self.last.blocks)
        holding = None if shown is None else tuple(n for n in shown if shown[n] and n in self.live)
        self.client_changes += 1
        self.events += (ControlEvent(kind, done, running, holding),)
        if kind in PAUSES:
            self.pause, self.pause_steps = PAUSES[kind], 0
        if kind in RESETS_OF_RUNNING:
            self._running_wait()
        if kind in RESETS and done:
            self.features.reset(self)
            self._kin.reset()
            if self.kept is not None:
                self.kept = KeptPrefixes(self.config["block_size"])
        self._changed()
        self.first_in_line = None
        self._note_first_in_line()

    def _running_wait(self) -> None:
        """Record that all running requests are back at the front of the waiting queue, with nothing
        computed."""
        self.features.dropped(self)
        if self.kept is not None:
            self.kept.in_flight.clear()
        for account in self.live.values():
            if account.started:
                account.rewind()
                self.work += bounds_of(self.system).alone(self.config, account)
        if self.shadow is not None:
            self.shadow.release_all()
        last = self.last
        if last is None:
            return
        together = None if last.waiting is None else (*(last.running or ()), *last.waiting)
        nothing: dict[str, Any] = {
            name: ((), {})[name in KEYED]
            for name in ("running", "prefilling", *KEYED)
            if getattr(last, name) is not None
        }
        free = None if last.free_blocks is None else self.config.get("num_blocks")
        self.last = replace(last, **nothing, waiting=together, free_blocks=free)

    def give_up(self, step: Step) -> None:
        """If the target ends a request that can never run, without scheduling it or emitting a
        token, treat the request as aborted before the step. Otherwise other requests would seem to
        wait for it.
        """
        for name in step.finished or ():
            account = self.live.get(name)
            if account is None or name in step.scheduled or name in (step.emitted or ()):
                continue
            ran_until_now = account.started and name in self.aborts_inside
            if account.never_runnable and not ran_until_now:
                self.abort(name, inside=False)

    def prefill_members(self, step: Step) -> list[R]:
        """Return the scheduled requests whose prompt was not fully computed before the step."""
        if self._members_of is not step:
            self._sort_members(step)
        return self._sorted_members[0]

    def decode_members(self, step: Step) -> list[R]:
        """Return the scheduled requests whose prompt was fully computed before the step."""
        if self._members_of is not step:
            self._sort_members(step)
        return self._sorted_members[1]

    def unstarted(self) -> list[R]:
        """Return the unfinished requests without a computed token, in order of arrival."""
        return (self._sorted_phases or self._sort_phases())[0]

    def ongoing(self) -> list[R]:
        """Return the unfinished requests between their first and their last chunk."""
        return (self._sorted_phases or self._sort_phases())[1]

    def decoding(self) -> list[R]:
        """Return the unfinished requests whose prompt is fully computed and which are not paused,
        in order of arrival."""
        return (self._sorted_phases or self._sort_phases())[2]

    def running(self) -> list[R]:
        return self.ongoing() + self.decoding()

    def hit_now(self, step: Step, account: R) -> int | None:
        """Return how many tokens a request finds in the cache if it starts in this step: 0 if it
        started earlier, and None if the number is unknown."""
        return self.features.hit(self, step, account)

    @property
    def arrived(self) -> int:
        return len(self.requests) + self.forgotten + self.arrived_again

    def arrives_last(self, account: R) -> None:
        """Move an unfinished request to the end of the order of arrival."""
        account.arrival = self.arrived
        self.arrived_again += 1
        self.live[account.id] = self.live.pop(account.id)
        self._moved()

    @property
    def max_steps(self) -> int:
        """Return the largest number of steps that all accepted requests together may take."""
        return bounds_of(self.system).together(self.config, self.work, self.arrived)

    def observe(self, step: Step) -> None:
        """Record the step. It must have been judged already."""
        changes = self.cache_changes(step)
        if self.shadow is not None and changes is not None:
            self.shadow.book(step, changes)
        if self.kept is not None:
            self.kept.observe(self, step)
        self.features.begin(self, step)
        self._count_step(step)
        self.last_was_prefill = bool(self.prefill_members(step))
        moved = self._compute(step)
        moved |= self._emit(step)
        if self.features.end(self, step) or moved:
            self._moved()
        finished = self._endings() if step.finished is None else step.finished
        for name, reason in finished.items():
            self._end(name, reason)
        for name in self.aborts_inside:
            self._end(name, "aborted")
        if self.aborts_inside or self.aborts_to_report or self.events:
            self.client_changes += 1
        self.aborts_inside, self.aborts_to_report, self.events = set(), set(), ()
        self.last = step
        self.step += 1
        self._members_of = None
        self.answers.clear()
        self._note_first_in_line()
        if self.forgets:
            self._forget(step)

    def _count_step(self, step: Step) -> None:
        stands = self.pause is not None and not step.scheduled
        self.pause_steps = self.pause_steps + 1 if stands else 0
        if not self.live or stands or self.features.may_compute_nothing(self, step):
            self.barren_steps = 0
        else:
            self.busy_steps += 1
            self.barren_steps = 0 if makes_progress(step) else self.barren_steps + 1

    def _compute(self, step: Step) -> bool:
        """Count preemptions and computed tokens. Return whether a request may have changed its
        phase."""
        moved = False
        for name in step.preempted or ():
            if name in self.live:
                self.live[name].rewind()
                moved = True
        for name, tokens in step.scheduled.items():
            if (account := self.requests.get(name)) is None:
                continue
            if account.ended is not None:  # a fault, but what the request computes still counts
                self._kin.add(account)
            hit = 0 if account.started else self._hit(step, account)
            moved |= not (account.prefilled and account.started)
            if not account.prefilled:
                account.prefill_steps += 1
            if not account.started:
                account.began = self.step
            account.prefix_hit += hit
            account.computed += hit + tokens
            self.features.computed(self, step, account)
        return moved

    def _emit(self, step: Step) -> bool:
        """Count emitted tokens. Return whether one of the requests was or is in its prefill."""
        moved, features, emitted = False, self.features, step.emitted
        completes = features.decided(self, step)
        if emitted is None:
            emitted = features.emissions(self, step, completes)
        for name, tokens in emitted.items():
            if (account := self.requests.get(name)) is not None:
                account.emitted += tokens
                prefilled = account.prefilled
                features.emitted(account, tokens, completes, self.config)
                moved |= not (prefilled and account.prefilled)
        return moved

    @once
    def cache_changes(self, step: Step) -> Changes | None:
        """Return how the step changes the cache, or None if no rule needs this."""
        return None if self.shadow is None else self.shadow.changes(self, step)

    def reached(self, step: Step, account: R) -> int:
        """Return an upper bound on the number of the request's tokens that were ever computed, this
        step included."""
        if account.started and self.features.restarts(step):
            return account.num_tokens
        if account.id not in step.scheduled:
            return self.features.reached(self, account)
        tokens = self._hit(step, account) + step.scheduled[account.id]
        return max(account.max_computed, account.computed + tokens)

    def _hit(self, step: Step, account: R) -> int:
        """Return the hit of a request in this step, or a lower bound if the target does not show
        it."""
        shown = self.hit_now(step, account)
        if shown is not None:
            return shown
        uncomputed = account.num_tokens - step.scheduled[account.id]
        known = max(self.max_hit(step, account), self.features.reached(self, account))
        return min(known, uncomputed)

    def kin(self, request: R) -> Collection[R]:
        """Return the requests that can share tokens with this one, including itself. Ended requests
        are included only if a result about shared tokens depends on them."""
        return self._kin.of(request)

    def max_hit(self, step: Step, account: R) -> int:
        """Return an upper bound on the hit: the largest number of the request's first tokens that
        any request, itself included, has computed by the end of the step."""
        tokens = 0
        for other in self.kin(account):
            if other.id not in step.scheduled and not self.features.reached(self, other):
                continue  # it has computed nothing
            shared = in_common(account, other)
            if shared <= tokens:
                continue  # whatever it has computed, it shares no more tokens
            computed = other.max_computed
            if other is not account:
                unseen = not other.started and self.hit_now(step, other) is None
                whole = unseen and other.id in step.scheduled
                computed = other.num_tokens if whole else self.reached(step, other)
            tokens = max(tokens, min(shared, computed))
        return tokens

    def _sort_members(self, step: Step) -> None:
        prefills: list[R] = []
        decodes: list[R] = []
        for name in step.scheduled:
            request = self.live.get(name)
            if request is not None:
                (decodes if request.prefilled else prefills).append(request)
        self._members_of = step
        self._sorted_members = (prefills, decodes)

    def _sort_phases(self) -> tuple[list[R], list[R], list[R]]:
        unstarted, ongoing, decoding = list[R](), list[R](), list[R]()
        for request in self.live.values():
            if request.id in self.paused:
                continue
            if not request.started:
                unstarted.append(request)
            elif request.prefilled:
                decoding.append(request)
            else:
                ongoing.append(request)
        self._sorted_phases = (unstarted, ongoing, decoding)
        return self._sorted_phases

    def _endings(self) -> dict[str, str]:
        return {
            request.id: "length" if request.output_len == request.max_tokens else "eos"
            for request in self.live.values()
            if request.output_len is not None and request.tokens_left <= 0
        }

    def _moved(self) -> None:
        self._sorted_phases = None
        self.moves += 1

    def _changed(self) -> None:
        self._moved()
        self.client_changes += 1
        self._members_of = None
        self.answers.clear()

    def _end(self, name: str, reason: str) -> None:
        account = self.live.pop(name, None)
        self._changed()
        if account is not None:
            account.ended, account.ended_at = reason, self.step
            self.features.ended(account)
            if self.forgets:
                self._ended.add(name)
            else:
                self._kin.end(account)

    def _forget(self, step: Step) -> None:
        cached = caches(self.config)
        if cached and self.shadow is None:
            return
        for name in self._ended.not_needed(step.blocks or {}, self.shadow if cached else None):
            if name not in self.live and (account := self.requests.pop(name, None)) is not None:
                self._kin.remove(account)
                self.forgotten += 1

    def _note_first_in_line(self) -> None:
        unstarted = [] if self.pause else self.unstarted()
        first = unstarted[0] if unstarted else None
        if first is None:
            self.first_in_line = None
        elif self.first_in_line is None or self.first_in_line[0] != first.id:
            bounds, live = bounds_of(self.system), self.live.values()
            ahead = [r for r in live if r.started or (r is not first and bounds.may_pass(first, r))]
            allowance = bounds.waits(self.config, self.revision, first, ahead)
            self.first_in_line = None if allowance is None else (first.id, self.step, allowance)
