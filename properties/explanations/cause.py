"""Show the cause of a failure: what a run shows of it, as sentences and as the data of a picture.

The evidence decides what is drawn, not the rule: a step that crosses a limit gives a curve, a hit
gives the bar of its tokens, a block that is lost or read by mistake gives the pool, and everything
else the requests with what each needed and what was free. A rule's message says which evidence it
speaks of: the numbers of the picture are those of the message.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from ...model.observation import Step
from ...model.scenario import Scenario
from ...spec.catalogue import load
from ..checking.session import Session
from ..history.content import in_common
from ..history.prefix_hits import caches
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory
from ..history.shadow_cache import ShadowCache
from ..rules.predicate import Broken
from .explain import Projected, explain, projections
from .measures import VOLUME, measures

NUMBERS = re.compile(r"\d+")
BEYOND = re.compile(r"(\d+) > (?:\w+ )?(\d+)")
BLOCK = re.compile(r"\bblock (\d+)\b")
TURNS = 16  # steps before the failure in which the turns of each request are shown
POINTS = 120  # of a curve, the last ones
ALONE = 48  # blocks of a pool that are drawn one by one
HOLDERS = 3  # of a block, the last ones
NAMED = 3  # requests of which sentences speak
MOST_SKIPPED = 1_000_000  # steps in a row; a longer run is not explained
IDLE = Step(kind="idle", scheduled={})


class Part(msgspec.Struct, frozen=True):
    """Tokens in a row of a request. `kind`: computed, cached, never (counted as cached, but never
    computed), missed (computed, but not found), now (computed in the step), rest."""

    kind: str
    tokens: int


class Bar(msgspec.Struct, frozen=True):
    """The tokens of a request, from its first one; `note` says what became of it."""

    request: str
    parts: tuple[Part, ...]
    note: str = ""


class Cell(msgspec.Struct, frozen=True):
    """Blocks `first` to `last` of the pool, which are alike.

    Attributes:
        state: held, shared, free, lost, twice (free, and held), unwritten (read, but never
            written), foreign (read, and holds other tokens); with `perhaps`, one of several
            blocks of which only the number is known.
        owners: who holds it, or held it last.
        holds: the tokens that were written to it, where that was seen.
    """

    first: int
    last: int
    state: str
    owners: tuple[str, ...] = ()
    holds: str = ""
    perhaps: bool = False


class Curve(msgspec.Struct, frozen=True):
    """What has a limit, by step. `projected`: from step, to step, value, and the request whose
    admission projected it; `coming`: a value that is still to be reached."""

    name: str
    unit: str
    limit: int
    points: tuple[tuple[int, int], ...]
    projected: tuple[tuple[int, int, int, str], ...] = ()
    coming: int | None = None


class Need(msgspec.Struct, frozen=True):
    """What a request needs for its next turn, and what the step left."""

    what: str
    needs: int
    free: int


class Row(msgspec.Struct, frozen=True):
    """A request with its turns: the tokens of each step, × where it was preempted, · where it got
    nothing, and nothing where it was not there."""

    request: str
    state: str
    turns: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    is_named: bool = False


class Cause(msgspec.Struct, frozen=True):
    """What is drawn first of a failure.

    Attributes:
        headline: the fault in a few words and numbers.
        why: sentences; one that begins with "step N:" speaks of that step.
        first: the step of the first turn of each row.
    """

    headline: str
    why: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    cells: tuple[Cell, ...] = ()
    curve: Curve | None = None
    rows: tuple[Row, ...] = ()
    first: int = 0


class Evidence:
    """Follows one run, and says at its end what caused a failure.

    Pass `begun` and `watch` to `replay`. Of earlier steps only the decisions are kept.
    """

    def __init__(self) -> None:
        self.history: RunHistory[Any] | None = None
        self.version = ""
        self._steps: list[Step] = []
        self._last: Step | None = None
        self._before: Step | None = None
        self._holders: dict[int, dict[str, int]] = {}  # of each block, with the last step

    def begun(self, session: Session) -> None:
        self.follow(session.monitor.history, session.started.version)

    def follow(self, history: RunHistory[Any], version: str) -> None:
        """Begin with a run; what its blocks hold is known if this is before the first step."""
        self.history, self.version = history, version
        config = history.config
        if history.shadow is None and not history.step:
            pool = config.get("num_blocks")
            history.shadow = ShadowCache(config["block_size"], caches(config), pool=pool)

    def watch(self, number: int, step: Step) -> None:
        missing = number - len(self._steps)  # a replay leaves out steps in which a model waits
        if missing > MOST_SKIPPED:
            self.history = None
            return
        self._steps += [IDLE] * missing
        decision = {name: getattr(step, name) for name in DECISION}
        self._steps.append(Step(**decision))
        self._before, self._last = self._last, step
        for name, table in (step.blocks or {}).items():
            for block in table:
                holders = self._holders.setdefault(block, {})
                holders.pop(name, None)
                holders[name] = number
                if len(holders) > HOLDERS:
                    del holders[next(iter(holders))]

    def cause(self, scenario: Scenario, broken: Sequence[Broken]) -> Cause | None:
        """Return what is known of the first of the broken rules; None if the run never began."""
        if self.history is None or not broken:
            return None
        return _Seen(self, scenario, broken).cause()


DECISION = ("kind", "scheduled", "computed", "preempted", "tkv", "running", "free_blocks")


class _Seen:
    """The run and its failure, as the pieces of evidence read them."""

    def __init__(self, run: Evidence, scenario: Scenario, broken: Sequence[Broken]) -> None:
        assert run.history is not None
        self.history, self.config = run.history, run.history.config
        self.steps, self.before = run._steps, run._before
        self.last = run._last or Step(kind="idle", scheduled={})
        self.holders, self.version = run._holders, run.version
        self.scenario, self.first = scenario, broken[0]
        self.message = " ".join(failure.message for failure in broken)
        self.numbers = {int(number) for number in NUMBERS.findall(self.message)}
        self.ended_by_it = self.first.step < len(self.steps)  # else it raised, or never answered
        rules = load(self.history.system, self.history.revision)
        self.is_progress = any(r.id == self.first.rule and r.kind == "progress" for r in rules)

    def cause(self) -> Cause:
        own = explain(self.first.rule, self.scenario, self.first.step, self.version)
        causes = [self._hit(), self._pool(), self._limit()] if self.ended_by_it else []
        shown = [cause for cause in causes if cause is not None] or [self._turns()]
        drawn = {name: value for cause in reversed(shown) for name, value in _drawn(cause)}
        why = own or [line for cause in shown for line in cause.why]
        return Cause(shown[0].headline or self.first.message, tuple(why), **drawn)

    # A hit

    def _hit(self) -> Cause | None:
        for name, hit in (self.last.prefix_hit or {}).items():
            request = self.history.requests.get(name)
            if request is None or request.began != self.first.step or hit not in self.numbers:
                continue
            if not self._is_named(name):
                continue
            others = [other for other in self.history.kin(request) if other is not request]
            source = max(others, key=lambda other: _of(request, other), default=None)
            known = max(request.recompute_from, _of(request, source) if source else 0)
            if hit > known:
                return self._never_computed(request, hit, known, source)
            due = [number for number in self.numbers if hit < number <= known]
            if due and "finds" in self.message:
                return self._not_found(request, hit, max(due), source)
        return None

    def _never_computed(
        self, request: RequestHistory, hit: int, known: int, source: RequestHistory | None
    ) -> Cause:
        size, table = self.config["block_size"], (self.last.blocks or {}).get(request.id, ())
        place = known // size
        block = table[place] if place < len(table) else None
        holder = self._holder(block, request.id) if block is not None else None
        if holder is not None:
            source = self.history.requests.get(holder[0], source)
        why = []
        if source is not None:
            shared = f"of which {in_common(request, source)} are also tokens of {request.id}"
            done = f"has computed {source.max_computed} tokens, {shared}{_left(source)}"
            if holder is None:
                why.append(f"step {max(source.began, 0)}: {source.id} begins; it {done}")
            else:
                place = f"the place of tokens {known} to {hit - 1}"
                why.append(f"step {holder[1]}: {source.id} holds block {block}, {place}; it {done}")
        why.append(
            f"step {self.first.step}: {request.id} finds these blocks by their content, and skips "
            f"{hit} tokens, {hit - known} of which nobody has computed"
        )
        bars = [self._bar(request, ("cached", known), ("never", hit - known))]
        if source is not None:
            done = source.max_computed
            ahead = hit - done if in_common(request, source) >= hit else 0
            bars.append(self._bar(source, ("computed", done), ("never", max(ahead, 0))))
        headline = f"{hit - known} of {hit} cached tokens were never computed"
        return Cause(headline, tuple(why), bars=tuple(bars))

    def _not_found(
        self, request: RequestHistory, hit: int, due: int, source: RequestHistory | None
    ) -> Cause:
        bars = [self._bar(request, ("cached", hit), ("missed", due - hit))]
        why = []
        if source is not None and source.max_computed >= due:
            bars.append(self._bar(source, ("computed", source.max_computed)))
            step = max(source.began, 0)
            why.append(f"step {step}: {source.id} computes the same tokens{_left(source)}")
        why.append(
            f"step {self.first.step}: {request.id} finds {hit} of them, and computes "
            f"{due - hit} again"
        )
        headline = f"{due - hit} of {due} cached tokens are not found"
        return Cause(headline, tuple(why), bars=tuple(bars))

    def _bar(self, request: RequestHistory, *parts: tuple[str, int]) -> Bar:
        now = self.last.scheduled.get(request.id, 0)
        done = sum(tokens for _, tokens in parts)
        left = max(request.prompt + request.regenerated - done, 0)
        now = min(now, left) if parts[0][0] == "cached" else 0
        parts = (*parts, ("now", now), ("rest", left - now))
        drawn = tuple(Part(kind, tokens) for kind, tokens in parts if tokens)
        return Bar(request.id, drawn, request.ended or "")

    def _holder(self, block: int, reader: str) -> tuple[str, int] | None:
        """Return who held a block last, but for its reader, and in which step."""
        held = [holder for holder in self.holders.get(block, {}).items() if holder[0] != reader]
        return held[-1] if held else None

    # The pool

    def _pool(self) -> Cause | None:
        step, size = self.last, self.config.get("num_blocks")
        if step.blocks is None:
            return None
        owners = _owners(step)
        named = {int(number) for number in BLOCK.findall(self.message)} & self.holders.keys()
        missing = 0
        if size is not None and step.free_blocks is not None:
            missing = size - len(owners) - step.free_blocks
        if not {len(owners), step.free_blocks} <= self.numbers:
            missing = 0
        if not named and not missing:
            return None
        marks, why, headline = self._marked(owners, named, missing)
        numbers = _all_numbers(self.holders, owners, size)
        cells = [self._cell(number, owners, marks) for number in numbers]
        return Cause(headline, tuple(why), cells=tuple(_joined(cells)))

    def _marked(
        self, owners: Mapping[int, list[str]], named: set[int], missing: int
    ) -> tuple[dict[int, tuple[str, bool]], list[str], str]:
        """Return the marks of blocks, sentences, and the headline."""
        marks, why, headline = dict[int, tuple[str, bool]](), list[str](), ""
        if missing:
            marks, why, headline = self._miscounted(owners, missing)
        for number in sorted(named):
            wrong = self._misread(number)
            if wrong is None:
                marks.setdefault(number, ("named", False))
                continue
            reader, present = wrong
            marks[number] = ("foreign" if present else "unwritten", False)
            holder = self._holder(number, reader)
            if holder is not None:
                other = self.history.requests[holder[0]]
                why.append(
                    f"step {holder[1]}: {other.id} holds block {number}, with "
                    f"{other.max_computed} of its tokens computed{_left(other)}"
                )
            does = f"holds {present}" if present else "was never written"
            why.append(f"step {self.first.step}: {reader} reads block {number}, which {does}")
            headline = headline or f"{reader} reads block {number}, which {does}"
        return marks, why, headline

    def _miscounted(
        self, owners: Mapping[int, list[str]], missing: int
    ) -> tuple[dict[int, tuple[str, bool]], list[str], str]:
        before = _owners(self.before) if self.before is not None else {}
        given = {
            number: [name for name in names if name not in owners.get(number, ())]
            for number, names in before.items()
        }
        if missing > 0:
            state, suspects = "lost", [n for n in given if n not in owners]
        else:
            state, suspects = "twice", [n for n in given if n in owners and given[n]]
        many = abs(missing)
        marks = {number: (state, len(suspects) != many) for number in suspects}
        givers = dict.fromkeys(name for number in suspects for name in given[number])
        was, now = self.before and self.before.free_blocks, self.last.free_blocks
        why = [
            f"step {self.first.step}: {name} {self._does(name)}, and gives up "
            f"{_blocks([n for n in suspects if name in given[n]])}"
            for name in givers
        ]
        if was is not None:
            why.append(f"the free blocks go from {was} to {now}")
        blocks = f"{many} block{'s' * (many > 1)}"
        verb = "is" if many == 1 else "are"
        if missing > 0:
            why.append(f"{blocks} {verb} neither held nor free from here on")
            return marks, why, f"{many} of {self.config['num_blocks']} blocks {verb} lost"
        why.append(
            f"{blocks} {verb} free, and still held: {'it' if many == 1 else 'they'} can be "
            "handed out again"
        )
        return (
            marks,
            why,
            f"{blocks} {verb} free although a request holds {'it' if many == 1 else 'them'}",
        )

    def _does(self, name: str) -> str:
        if name in (self.last.preempted or ()):
            return "is preempted"
        account = self.history.requests.get(name)
        ended = (self.last.finished or {}).get(name) or (account.ended if account else None)
        return f"leaves ({ended})" if ended else "goes on"

    def _misread(self, number: int) -> tuple[str, str] | None:
        """Return who reads other tokens than its own from a block, and what it holds."""
        shadow, tables = self.history.shadow, self.last.blocks or {}
        if shadow is None:
            return None
        entry = shadow.holds.get(number)
        for name, table in tables.items():
            request = self.history.requests.get(name)
            if request is None or number not in table:
                continue
            hidden = [unseen for _, unseen in shadow.unseen]
            place = table.index(number)
            if place * shadow.block_size >= request.computed:
                continue
            if shadow.mismatch(request, request.computed, number, place, entry, hidden):
                return name, "" if entry is None else self._holds(number)
        return None

    def _holds(self, number: int) -> str:
        shadow = self.history.shadow
        entry = shadow.holds.get(number) if shadow is not None else None
        return f"{entry.owner} {entry.start}–{entry.end - 1}" if entry is not None else ""

    def _cell(
        self, number: int, owners: Mapping[int, list[str]], marks: Mapping[int, tuple[str, bool]]
    ) -> Cell:
        names = owners.get(number, [])
        state = "held" if len(names) == 1 else "shared" if names else "free"
        state, perhaps = marks.get(number, (state, False))
        if not names and number in self.holders and state != "free":
            names = [*self.holders[number]][-1:]
        return Cell(number, number, state, tuple(names), self._holds(number), perhaps)

    # A limit

    def _limit(self) -> Cause | None:
        beyond = [(int(value), int(limit)) for value, limit in BEYOND.findall(self.message)]
        for measure in measures(self.last, self.config):
            if measure.value > measure.limit and {measure.value, measure.limit} <= self.numbers:
                return self._curve(measure.name, measure.unit, measure.value, measure.limit)
        for value, limit in beyond:
            if limit == self.config.get("max_batch_tkv"):
                return self._curve(VOLUME, "tokens", value, limit, is_coming=True)
            return Cause(
                f"{value:,}/{limit:,}: {value - limit:,} over",  # the message says of what
                bars=(Bar("", (Part("computed", limit), Part("never", value - limit))),),
            )
        return None

    def _curve(
        self, name: str, unit: str, value: int, limit: int, *, is_coming: bool = False
    ) -> Cause:
        points = [
            (number, measure.value)
            for number, step in enumerate(self.steps)
            for measure in measures(step, self.config)
            if measure.name == name
        ][-POINTS:]
        begin = points[0][0] if points else 0
        projected = []
        if name == VOLUME:
            joins = [join for join in self._projections if join.joined]
            ends = [join.step for join in joins[1:]] + [len(self.steps)]
            projected = [
                (max(join.step, begin), end, join.largest, join.newcomer)
                for join, end in zip(joins, ends, strict=True)
                if end > begin
            ]
        coming = value if is_coming else None
        curve = Curve(name, unit, limit, tuple(points), tuple(projected), coming)
        will = " to come" if is_coming else ""
        headline = f"{name}{will}: {value:,}/{limit:,} {unit}, {value - limit:,} over"
        before = dict(points).get(self.first.step - 1)
        rises = f"{name} goes from {before:,} to {value:,}" if before is not None else f"{value:,}"
        who = ", ".join(f"{name} {tokens:,}" for name, tokens in self.last.scheduled.items())
        why = () if is_coming else (f"step {self.first.step}: {rises}; tokens of each: {who}",)
        return Cause(headline, why, curve=curve)

    @cached_property
    def _projections(self) -> list[Projected]:
        return projections(self.scenario, self.version, self.steps)

    # Turns: who waits, and what it could have had

    def _turns(self) -> Cause:
        history, step = self.history, self.last
        first = max(len(self.steps) - TURNS, 0)
        shown = [*history.live.values()]
        gone = [name for name in step.scheduled if name not in history.live]
        shown += [history.requests[name] for name in gone if name in history.requests]
        rows = [
            Row(
                account.id,
                self._state(account),
                tuple(self._turn(account, number) for number in range(first, len(self.steps))),
                tuple(self._needs(account)) if account.id in history.live else (),
                self._is_named(account.id),
            )
            for account in shown
        ]
        rows.sort(key=lambda row: not row.is_named)
        return Cause(
            self._standstill() or self._waiting(rows),
            tuple(self._reasons(rows)),
            rows=tuple(rows[: 2 * TURNS]),
            first=first,
        )

    def _progress(self) -> int | None:
        """Return the last step in which anything was computed."""
        busy = (
            n for n in range(len(self.steps) - 1, -1, -1) if any(self.steps[n].scheduled.values())
        )
        return next(busy, None)

    def _standstill(self) -> str:
        progress = self._progress()
        if self.ended_by_it and not self.is_progress:
            return ""
        if not self.ended_by_it:
            return f"the scheduler does not come back from step {self.first.step}"
        if progress is not None and progress < len(self.steps) - 1:
            return f"nothing is computed after step {progress}"
        return "nothing is ever computed" if progress is None and self.history.live else ""

    def _waiting(self, rows: Sequence[Row]) -> str:
        for row in rows:
            if row.is_named and row.request in (self.last.preempted or ()):
                return f"{row.request} is preempted{_free_words(row)}"
            if row.is_named and row.needs and row.request not in self.last.scheduled:
                steps = len(self.steps) - self._since(row.request)
                return f"{row.request} waits for {steps} step{'s' * (steps != 1)}{_free_words(row)}"
        return ""

    def _reasons(self, rows: Sequence[Row]) -> Iterator[str]:
        progress = self._progress()
        if self._standstill() and progress is not None:
            does = ", ".join(self.steps[progress].scheduled)
            yield f"step {progress}: the last one that computes anything, for {does}"
        if not self.ended_by_it:
            yield from self._clients()
        waiting = [row for row in rows if row.needs and row.request not in self.last.scheduled]
        alike: dict[tuple[int, str], list[str]] = {}
        for row in waiting:
            if row.is_named or self._standstill():
                alike.setdefault((self._since(row.request), _in_words(row)), []).append(row.request)
        for (step, words), names in [*alike.items()][:NAMED]:
            verb = "gets" if len(names) == 1 else "get"
            yield f"step {step}: from here on {', '.join(names)} {verb} nothing; {words}"
        held = {name: len(table) for name, table in (self.last.blocks or {}).items() if table}
        if held and any(need.needs > need.free for row in waiting for need in row.needs):
            holders = ", ".join(f"{name} {many}" for name, many in [*held.items()][: 2 * NAMED])
            yield f"the blocks are held by {holders}"

    def _clients(self) -> Iterator[str]:
        step = self.first.step
        for request in self.scenario.requests[: 2 * TURNS]:
            if request.arrival == step:
                yield (
                    f"step {step}: {request.id} arrives, with {request.prompt_len} tokens and up "
                    f"to {request.max_tokens} to generate"
                )
            if request.abort_at == step:
                yield f"step {step}: the client of {request.id} gives up"

    def _state(self, account: RequestHistory) -> str:
        name, step = account.id, self.last
        for words, queue in (
            ("preempted", step.preempted),
            ("paused", step.paused),
            ("loads", step.parked),
            ("runs", step.running),
            ("waits", step.waiting),
        ):
            if name in (queue or ()):
                return words
        if account.ended:
            return f"left ({account.ended})"
        return "runs" if account.started else "waits"

    def _turn(self, account: RequestHistory, number: int) -> str:
        step = self.steps[number]
        if account.id in (step.preempted or ()):
            return "×"
        if account.id in step.scheduled:
            return str(step.scheduled[account.id])
        return "·" if self._arrival(account.id) <= number else ""

    def _since(self, name: str) -> int:
        """Return the step from which on a request got nothing."""
        for number in range(len(self.steps) - 1, -1, -1):
            if self.steps[number].scheduled.get(name):
                return number + 1
        return self._arrival(name)

    def _arrival(self, name: str) -> int:
        arrivals = (request.arrival for request in self.scenario.requests if request.id == name)
        return next(arrivals, 0)

    def _needs(self, account: RequestHistory) -> Iterator[Need]:
        """Yield what the next turn of a request needs, as far as the target shows what is left."""
        config, step, held = self.config, self.last, (self.last.blocks or {}).get(account.id, ())
        budget = config.get("max_num_batched_tokens")
        turn = max(account.num_tokens - account.computed, 1)
        for most in (config.get("chunk_size"), budget):
            turn = min(turn, most) if most else turn
        if step.running is not None and config.get("max_num_seqs"):
            running = account.id in step.running
            free = config["max_num_seqs"] - len(step.running)
            if not running:
                yield Need("seats", 1, max(free, 0))
        if step.free_blocks is not None and config.get("num_blocks") is not None:
            blocks = -(-(account.computed + turn) // config["block_size"]) - len(held)
            yield Need("blocks", max(blocks, 0), step.free_blocks)
        refused = [join for join in self._projections if join.newcomer == account.id]
        if refused and not refused[-1].joined and refused[-1].step == self.first.step:
            yield Need(f"{VOLUME}, projected", refused[-1].largest, config["max_batch_tkv"])
        if budget:
            yield Need("tokens of the budget", turn, max(budget - sum(step.scheduled.values()), 0))

    def _is_named(self, name: str) -> bool:
        return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", self.message) is not None


def spans(numbers: Sequence[int]) -> str:
    """Return numbers in words, those that follow each other as `3–5`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in found)


def _blocks(numbers: Sequence[int]) -> str:
    return f"block{'s' * (len(numbers) > 1)} {spans(numbers)}"


def _drawn(cause: Cause) -> Iterator[tuple[str, Any]]:
    for name in ("bars", "cells", "curve", "rows", "first"):
        if getattr(cause, name):
            yield name, getattr(cause, name)


def _of(request: RequestHistory, other: RequestHistory) -> int:
    """Return how many leading tokens of a request another one has computed."""
    return min(in_common(request, other), other.max_computed)


def _left(account: RequestHistory) -> str:
    return f", and has left ({account.ended})" if account.ended else ""


def _in_words(row: Row) -> str:
    needs = [need for need in row.needs if need.needs]
    lacks = [f"{need.needs - need.free} {need.what}" for need in needs if need.needs > need.free]
    words = ", ".join(f"{need.needs} of {need.free} free {need.what}" for need in needs)
    if lacks:
        return f"it needs {words}: {' and '.join(lacks)} too few"
    return f"it needs {words}: nothing that is shown keeps it back" if needs else "it needs nothing"


def _free_words(row: Row) -> str:
    free = [f"{need.free} {need.what}" for need in row.needs if need.free]
    return f", with {' and '.join(free)} left" if free else ""


def _owners(step: Step) -> dict[int, list[str]]:
    owners: dict[int, list[str]] = {}
    for name, table in (step.blocks or {}).items():
        for number in dict.fromkeys(table):
            owners.setdefault(number, []).append(name)
    return owners


def _all_numbers(
    seen: Mapping[int, Any], owners: Mapping[int, Any], size: int | None
) -> Sequence[int]:
    """Return the numbers of the blocks of a pool: from 0, or from 1 where 0 is never handed out."""
    known = sorted({*seen, *owners})
    if size is None:
        return known
    low = 0 if not known or known[0] == 0 else 1
    return range(low, max(low + size, known[-1] + 1 if known else 0))


def _joined(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells, of a large pool with neighbours that are alike as one."""
    if len(cells) <= ALONE:
        return list(cells)
    found: list[Cell] = []
    for cell in cells:
        plain = msgspec.structs.replace(cell, holds="") if cell.state in QUIET else cell
        if found and plain.state in QUIET and _alike(found[-1], plain):
            found[-1] = msgspec.structs.replace(found[-1], last=plain.last)
        else:
            found.append(plain)
    marked = [cell for cell in found if cell.state not in QUIET]
    quiet = [cell for cell in found if cell.state in QUIET]
    return sorted([*marked[:ALONE], *quiet[: max(ALONE - len(marked), 0)]], key=lambda c: c.first)


def _alike(cell: Cell, other: Cell) -> bool:
    return (cell.state, cell.owners) == (other.state, other.owners)


QUIET = ("held", "shared", "free")
