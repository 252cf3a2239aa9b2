"""The state space of a scheduler and its clients, for `search`.

Before any step, requests from a menu may arrive, up to a given total. In any step, a request may
end early, and a client may abort its request, before or after the decision. The model takes the
scheduler's steps, and every rule is checked in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec

from ...model.observation import Step
from ...properties.history.run_history import RunHistory
from ...properties.rules.predicate import Predicate
from ...properties.rules.registry import COMPLETION, NEVER_CRASHES, NEVER_HANGS
from .branching_history import BranchingHistory
from .models import Models, Stepped
from .scope import Aborts
from .search import Break, Move, numbers
from .undecided import AT_ARRIVAL, Candidates, ChoiceNeeded, RequestMenu

# ALL-R05 allows the first in line two steps for its own chunk, plus two as a margin.
WASTE_IN_LINE = 4


class Wait(NamedTuple):
    """Counts of the steps that were wasted so far.

    Attributes:
        head: the first request in line.
        in_line: the steps since `head` became first in line, except those in which a request that
            arrived earlier computed something.
        idle: the steps in which no request computed anything although some request was unfinished.
    """

    head: str | None = None
    in_line: int = 0
    idle: int = 0

    def after(self, before: RunHistory, step: Step, order: dict[str, int]) -> Wait:
        """Return the counts after one more step. `order` numbers the requests by arrival."""
        idle = self.idle + (bool(before.live) and not any(step.scheduled.values()))
        head = head_of(before)
        if head is None or head in step.scheduled:
            return Wait(None, 0, idle)
        helped = any(
            tokens and order.get(name, 0) < order[head] for name, tokens in step.scheduled.items()
        )
        so_far = self.in_line if head == self.head else 0
        return Wait(head, so_far + (not helped), idle)

    def counted(self, before: RunHistory, requests: int) -> tuple[int, int]:
        """Return `in_line` and `idle`, capped where larger counts make no difference.

        If `head` is no longer first in line, `in_line` is 0.
        """
        in_line = self.in_line if self.head == head_of(before) else 0
        return min(in_line, WASTE_IN_LINE), min(self.idle, max_idle(requests))


def max_idle(requests: int) -> int:
    """Return a number of idle steps that is larger than this many requests can ever need."""
    return 2 * requests + 2


def head_of(history: RunHistory) -> str | None:
    unstarted = history.unstarted()
    return unstarted[0].id if unstarted else None


def waits_too_long(wait: Wait) -> str | None:
    """Return a message if the first in line may have waited longer than its bound (ALL-R05)."""
    if wait.in_line < WASTE_IN_LINE:
        return None
    return (
        f"{wait.head} is first in line, and no earlier request has computed anything for "
        f"{wait.in_line} steps"
    )


def never_ends(wait: Wait, accepted: int) -> str | None:
    """Return a message if the requests took more idle steps than they can need (ALL-R06)."""
    if wait.idle < max_idle(accepted):
        return None
    return f"{wait.idle} steps computed nothing, with {accepted} requests"


# The id of an aborted request, and whether the abort happens inside the step.
Abort = tuple[str, bool]
BOUNDED_WAIT = "ALL-R05"


class Node(NamedTuple):
    """A state on a path: the scheduler's state, the history, the requests and the wasted steps."""

    state: Any
    history: BranchingHistory
    known: Mapping[str, Candidates]
    wait: Wait = Wait()


class SchedulerSpace:
    """Every behaviour of a scheduler with up to `requests` requests from a menu.

    Attributes:
        aborts: which clients abort their requests (`scope.Aborts`).
        reduced: whether to explore fewer paths. If so, a length is chosen only when something reads
            it, and while no request waits or arrives, clients act only in steps that begin a block.
        exercised: for each rule, the configurations in which its witness occurred, as bits.
    """

    def __init__(
        self,
        models: Models,
        menu: RequestMenu,
        requests: int,
        checks: Mapping[str, Predicate],
        revision: str,
        *,
        aborts: Aborts = "alone",
        reduced: bool = True,
    ) -> None:
        self._models, self._menu = models, menu
        self._requests = requests
        # `Wait` checks these two rules instead of the history.
        self._checks = [
            (rule, *predicate[:3], rule in models.limited)
            for rule, predicate in checks.items()
            if rule not in (BOUNDED_WAIT, COMPLETION)
        ]
        self._revision = revision
        self._aborts = aborts
        self._reduced = reduced
        self.exercised: dict[str, int] = dict.fromkeys((NEVER_CRASHES, NEVER_HANGS, *checks), 0)

    def roots(self) -> list[tuple[Node, int]]:
        """Return the initial states. Configurations with equal states share one."""
        roots: list[tuple[Node, int]] = []
        for member, config in enumerate(self._models.configs):
            state = self._models.initial(member)
            same = [place for place, (node, _) in enumerate(roots) if node.state == state]
            if same:
                node, members = roots[same[0]]
                roots[same[0]] = node, members | 1 << member
            else:
                history = BranchingHistory(config, self._revision, self._models.system)
                roots.append((Node(state, history, {}), 1 << member))
        return roots

    def key(self, node: Node) -> Hashable:
        """Return a short key for the node that does not depend on names."""
        history = node.history
        still_to_come = self._requests - len(node.known)
        wait = node.wait.counted(history, self._requests) if self._models.idle_is_waste else (0, 0)
        reports = len(history.aborts_to_report)
        barren = min(history.barren_steps, 2 + history.features.depth(history.config))
        own = still_to_come, *wait, reports, history.last_was_prefill, barren
        return own, self._models.key(node.state, history)

    def moves(self, node: Node, members: int) -> list[Move]:
        """Return the possible next moves, which are arrivals and steps.

        If one of them reads an undecided field of a request, return the choices for that field
        instead.
        """
        if not node.history.live and len(node.known) == self._requests:
            return []
        settled = bool(node.history.aborts_to_report)
        quiet = settled or (self._reduced and self._nobody_to_wait_for(node))
        try:
            moves = list(self._step(node, members, None, alone=quiet))
            if not settled:
                moves += self._arrivals(node, members)
        except ChoiceNeeded as choice:
            return list(self._choices(node, members, choice))
        if self._aborts != "none" and not quiet:
            for name, inside in product(node.history.live, (False, True)):
                moves += self._aborted(node, members, name, inside)
        return moves

    def _aborted(self, node: Node, members: int, name: str, inside: bool) -> list[Move]:
        """Return the steps in which a client aborts its request.

        If only the abort reads a field of an undecided request, make the abort a separate move. The
        field is then chosen in a later move, and the request stays undecided on other paths.
        """
        try:
            return list(self._step(node, members, (name, inside), self._aborts == "alone"))
        except ChoiceNeeded as choice:
            if inside:
                return list(self._choices(node, members, choice))
            history = node.history.fork()
            history.abort(name, inside=False)
            state = self._models.abort(node.state, name)
            return [Move(("give up", name), node._replace(state=state, history=history), members)]

    def _arrivals(self, node: Node, members: int) -> Iterator[Move]:
        """Let the next request arrive, at the end of the queue.

        If nothing has read the last request in the queue yet, nothing would read a request behind
        it. The new request can then arrive later with the same effect, so this method yields
        nothing. This also avoids steps that differ only in how many requests wait.
        """
        if len(node.known) == self._requests:
            return
        if self._reduced and any(
            self._untouched(node, account.id) for account in node.history.unstarted()
        ):
            return
        name, everything = f"r{len(node.known)}", self._menu.everything
        parts = everything.split(AT_ARRIVAL)
        if not self._reduced:
            parts = [self._menu.candidates(1 << item) for item in everything.numbers()]
        for candidates in parts:
            taken = members & candidates.accepted
            if taken:
                history = node.history.fork()
                history.open(name, candidates)
                history.narrow(name, candidates)
                state = self._models.arrive(node.state, name, candidates)
                after = node._replace(
                    state=state, history=history, known={**node.known, name: candidates}
                )
                yield Move(("arrive", name, candidates.bits), after, taken)

    def _untouched(self, node: Node, name: str) -> bool:
        everything = self._menu.everything
        return len(self._menu.items) > 1 and node.known[name].bits == everything.bits

    def _choices(self, node: Node, members: int, choice: ChoiceNeeded) -> Iterator[Move]:
        for candidates in node.known[choice.request].split(choice.field):
            taken = members & candidates.accepted
            if taken:
                after = self._narrowed(node, choice.request, candidates)
                yield Move(("choose", choice.request, candidates.bits), after, taken)

    def _narrowed(self, node: Node, request: str, candidates: Candidates) -> Node:
        history = node.history.fork()
        history.narrow(request, candidates)
        state = self._models.narrow(node.state, request, candidates)
        return node._replace(
            state=state, history=history, known={**node.known, request: candidates}
        )

    def _nobody_to_wait_for(self, node: Node) -> bool:
        closed = len(node.known) == self._requests and not node.history.last_was_prefill
        return closed and node.history.last is not None and self._models.quiet(node.state)

    def _step(
        self, node: Node, members: int, given_up: Abort | None, alone: bool
    ) -> Iterator[Move]:
        """Yield a step for each decision that some configurations make, and for each set of
        requests that may end in it. With `alone`, a request ends only if it must."""
        state: Any = node.state
        inside: tuple[str, ...] = ()
        if given_up is not None and given_up[1]:
            inside = given_up[:1]
        elif given_up is not None:
            state = self._models.abort(state, given_up[0])
        for together, stepped in self._decisions(state, members, inside):
            for ends in self._endings(node, stepped, together, alone):
                move = self._taken(node, state, together, given_up, stepped, ends)
                if move is not None:
                    yield move

    def _decisions(
        self, state: Any, members: int, inside: tuple[str, ...]
    ) -> Iterator[tuple[int, Stepped]]:
        """Yield groups of configurations that decide in the same way, as bits. Each group comes
        with its step, in which no request ends early.

        A scheduler only compares values with its limit. So if two limits lead to the same step, all
        limits between them do as well. A limit that is not read makes no difference.
        """
        tried: dict[int, Stepped] = {}

        def at(member: int) -> Stepped:
            if member not in tried:
                tried[member] = self._models.step(member, state, inside)
            return tried[member]

        together: list[tuple[int, ...]] = []
        for part in group_by_step(numbers(members), at):
            if together and at(together[-1][0]) == at(part[0]):
                together[-1] += part
            else:
                together.append(part)
        for part in together:
            yield bits(part), at(part[0])

    def _endings(
        self, node: Node, stepped: Stepped, members: int, alone: bool
    ) -> Iterator[tuple[Ending, ...]]:
        options = []
        for name in stepped.seen.get("emitted", ()):
            if name in node.history.live:
                tokens = node.history.live[name].emitted + 1
                options.append(list(continuations(name, node.known[name], tokens, members, alone)))
        return product(*options)

    def _taken(
        self,
        node: Node,
        state: Any,
        members: int,
        given_up: Abort | None,
        stepped: Stepped,
        ends: tuple[Ending, ...],
    ) -> Move | None:
        """Return the move in which requests end as in `ends`. `stepped` is the same step without an
        early end."""
        history, known, before = node.history.fork(), node.known, state
        if given_up is not None:
            history.abort(*given_up)
        for name, candidates, ending in ends:
            if candidates is not known[name]:
                known = {**known, name: candidates}
                history.narrow(name, candidates)
                state = self._models.narrow(state, name, candidates)
            members &= candidates.accepted
            if ending:
                early = candidates.max_tokens != history.live[name].emitted + 1
                state = self._models.end(state, name) if early else state
                history.ends(name)
        if not members:
            return None
        if state is not before:
            inside = given_up[:1] if given_up is not None and given_up[1] else ()
            stepped = self._models.step(smallest_and_largest(members)[0], state, inside)
        label = (
            "step",
            given_up,
            tuple((name, chosen.bits, ending) for name, chosen, ending in ends),
        )
        if stepped.crash is not None:
            return Move(label, None, members, (Break(NEVER_CRASHES, stepped.crash, members),))
        step = msgspec.convert(stepped.seen, Step)
        order = {name: number for number, name in enumerate(known)}
        wait = node.wait.after(history, step, order)
        broken = self._judged(history, step, wait, members)
        progress = not history.live or makes_progress(step)
        history.observe(step)
        after = Node(stepped.after, history, known, wait)
        return Move(label, after, members, tuple(broken), progress)

    def _judged(
        self, history: BranchingHistory, step: Step, wait: Wait, members: int
    ) -> list[Break]:
        """Return the rules that the step breaks, each with the configurations that break it.

        These configurations lead to the same step, so they differ only in the limit. A rule that
        reads the limit is checked at the smallest and at the largest limit. If it is broken at
        either, it is checked at every limit.
        """
        absent = () if history.prefill_members(step) else ("prefill",)
        absent = absent if history.decode_members(step) else (*absent, "decode")
        smallest, largest = smallest_and_largest(members)
        broken: list[Break] = []
        for rule, is_broken, is_exercised, who, limited in self._checks:
            if who in absent:
                continue
            history.config = self._models.configs[smallest]
            message = is_broken(history, step)
            if limited and largest != smallest:
                history.config = self._models.configs[largest]
                if message is not None or is_broken(history, step) is not None:
                    broken += self._one_by_one(rule, is_broken, history, step, members)
            elif message is not None:
                broken.append(Break(rule, message, members))
            unseen = members & ~self.exercised[rule]
            if unseen:
                self._stake(rule, is_exercised, history, step, unseen, limited)
        for rule_break in broken:
            self.exercised[rule_break.rule] |= rule_break.members
        if history.live:
            for rule in (NEVER_CRASHES, NEVER_HANGS):
                self.exercised[rule] |= members
        return broken + self._waited(wait, len(history.requests), step, members)

    def _one_by_one(
        self, rule: str, is_broken: Any, history: BranchingHistory, step: Step, members: int
    ) -> list[Break]:
        by_message: dict[str, int] = {}
        for member in numbers(members):
            history.config = self._models.configs[member]
            message = is_broken(history, step)
            if message is not None:
                by_message[message] = by_message.get(message, 0) | 1 << member
        return [Break(rule, message, part) for message, part in by_message.items()]

    def _stake(
        self,
        rule: str,
        is_exercised: Any,
        history: BranchingHistory,
        step: Step,
        unseen: int,
        limited: bool,
    ) -> None:
        """Record the configurations in which this step exercises the rule. If the rule reads the
        limit, try only the smallest and the largest limit."""
        smallest, largest = smallest_and_largest(unseen)
        for member in {smallest, largest} if limited else (smallest,):
            history.config = self._models.configs[member]
            if may_be(is_exercised, history, step, 1 << member):
                self.exercised[rule] |= 1 << member if limited else unseen

    def _waited(self, wait: Wait, accepted: int, step: Step, members: int) -> list[Break]:
        """Return the broken rules about waiting, which are decided by `Wait` and not by the
        history."""
        broken = []
        bounded = BOUNDED_WAIT in self.exercised and self._models.waits_are_bounded
        if bounded and wait.head is not None:
            self.exercised[BOUNDED_WAIT] |= members
            if (message := waits_too_long(wait)) is not None:
                broken.append(Break(BOUNDED_WAIT, message, members))
        if COMPLETION not in self.exercised:
            return broken
        self.exercised[COMPLETION] |= members if step.finished else 0
        # If idle steps are not wasted, only a recurring state reveals the fault.
        if self._models.idle_is_waste and (message := never_ends(wait, accepted)) is not None:
            broken.append(Break(COMPLETION, message, members))
        return broken


# A request that emits a token, its candidates afterwards, and whether this token is its last.
Ending = tuple[str, Candidates, bool]


def continuations(
    name: str, candidates: Candidates, tokens: int, members: int, alone: bool
) -> Iterator[Ending]:
    """Yield the ways in which a request may continue after `tokens` tokens.

    A request that has all its tokens ends. With `alone`, no other request ends. If a request ends
    early, its max_tokens makes no difference from then on, so the smallest possible value is
    chosen. Ending early and having all tokens are separate cases only if the model refuses every
    request with a larger max_tokens.
    """
    more = candidates.asking_more_than(tokens)
    if more is not None and more.accepted & members:
        yield name, more, False
        if not alone:
            yield name, more.asking(more.fewest) or more, True
    exactly = candidates.asking(tokens)
    if exactly is not None and (more is None or members & ~more.accepted):
        yield name, exactly, True


def group_by_step(part: tuple[int, ...], at: Callable[[int], Stepped]) -> Iterator[tuple[int, ...]]:
    """Split the configurations into consecutive groups that decide in the same way. `at` returns
    the step of one configuration.

    This is not a nested function, because a recursive closure would keep its steps alive until the
    garbage collector runs.
    """
    first = at(part[0])
    if len(part) == 1 or not first.limited or first == at(part[-1]):
        yield part
    else:
        yield from group_by_step(part[: len(part) // 2], at)
        yield from group_by_step(part[len(part) // 2 :], at)


def makes_progress(step: Step) -> bool:
    """Return whether the step made progress that cannot be lost. A preemption discards computed
    tokens, but not emitted ones."""
    tokens = step.scheduled if step.preempted is None else step.emitted or {}
    return any(tokens.values())


def may_be(is_exercised: Any, history: BranchingHistory, step: Step, member: int) -> bool:
    """Return whether the witness occurs for some choice of the undecided fields that it reads."""
    try:
        return bool(is_exercised(history, step))
    except ChoiceNeeded as choice:
        account: Any = history.live[choice.request]
        for candidates in account.candidates.split(choice.field):
            if candidates.accepted & member:
                chosen = history.fork()
                chosen.narrow(choice.request, candidates)
                if may_be(is_exercised, chosen, step, member):
                    return True
        return False


def smallest_and_largest(members: int) -> tuple[int, int]:
    return (members & -members).bit_length() - 1, members.bit_length() - 1


def bits(members: Sequence[int]) -> int:
    return sum(1 << member for member in members)
