"""A run of vLLM: its state beyond the kernel's, and the encoder's work in a step."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from ....model.observation import Step
from ...history.per_step_cache import once
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from . import cache_events, encoder, groups, mamba, speculation, worker
from .cache_events import Routing
from .groups import Groups, Kept
from .request_history import VllmRequestHistory
from .worker import Worker

VllmRun: TypeAlias = RunHistory[VllmRequestHistory]


class Coming(NamedTuple):
    """A token that a decision in flight will emit.

    Attributes:
        drafts: the number of tokens computed beyond the known ones. In some releases, this includes
            the padding of a joining request.
        proposed: how many of these tokens the drafter had proposed.
        computed: how many tokens of the request are computed with the decision.
        requests: how many requests the decision contains.
    """

    drafts: int = 0
    proposed: int = 0
    computed: int = 0
    requests: int = 0


NOTHING = Coming()
# Maps each block that a request gave back to the request, the step in which it did so, and the
# index of the block in the request's block table.
GivenBack: TypeAlias = Mapping[int, tuple[str, int, int]]


class Returned(NamedTuple):
    """A block that a request gave back in a step, in a group of the KV cache. `can_be_found` says
    whether the prefix cache could certainly find it then."""

    request: str
    step: int
    group: int
    can_be_found: bool


# A decision in flight: for each request, the token that it will yield, or None.
Flight = dict[str, Coming | None]


class Cadence(NamedTuple):
    """What a client knows about the steps that hold prefills back (`cadence`).

    Attributes:
        least, most: bounds on the number of coming steps that may hold prefills back.
        crowded: whether the last step that could admit requests left some waiting; None if unknown.
        prefilling: the running requests that are still in their prefill.
        aside: waiting requests that may have had to wait for tokens in flight.
    """

    least: int = 0
    most: int = 0
    crowded: bool | None = False
    prefilling: frozenset[str] = frozenset()
    aside: frozenset[str] = frozenset()


class VllmState(NamedTuple):
    """The state of a run beyond its requests.

    Attributes:
        flights: decisions in flight, the oldest first.
        early: the number of consecutive steps in which a decision completed early.
        outputs: encoder outputs that the worker has, with their tokens.
        groups: the content of the blocks in the groups of the KV cache after the first.
        was_reset: whether the prefix cache was reset in this run.
        worker: what the worker holds, if the target shows the messages to the worker.
        unfilled: for each block whose synchronous load has failed, how many of its tokens have been
            computed since.
        cadence: which steps hold prefills back.
        routing: what is in the prefix cache, and what routers know of it.
        kept: with several groups of the KV cache, the blocks that are still in the pool.
        given_back: the blocks of full attention that requests have given back and that are still in
            the pool.
        returned: such blocks of every group, if there are several groups.
        proposed: the requests of the last message to the worker, if it shows drafts.
        ended: how many requests had ended before the last step, if running requests must rest.
        hits_count_with: with which chunk of a prompt, the first or the last, a simulator may count
            the prompt's hit in its prompt throughput.
    """

    flights: tuple[Flight, ...] = ()
    early: int = 0
    outputs: Mapping[str, int] = {}
    groups: Groups = Groups()
    was_reset: bool = False
    worker: Worker = {}  # noqa: RUF012 (a Mapping)
    unfilled: Mapping[int, int] = {}
    cadence: Cadence = Cadence()
    routing: Routing = Routing()
    kept: Kept = {}  # noqa: RUF012 (a Mapping)
    given_back: GivenBack = {}  # noqa: RUF012 (a Mapping)
    returned: Mapping[int, Returned] = {}
    proposed: Collection[str] = ()
    ended: int = 0
    hits_count_with: frozenset[Literal["first", "last"]] = frozenset({"first", "last"})


def of(account: RequestHistory) -> VllmRequestHistory:
    return cast(VllmRequestHistory, account)


def requests_of(accounts: Mapping[str, RequestHistory]) -> Mapping[str, VllmRequestHistory]:
    return cast(Mapping[str, VllmRequestHistory], accounts)


def state_of(history: RunHistory[Any]) -> VllmState:
    return cast(VllmState, history.system_state)


@once
def encoded(history: RunHistory[Any], step: Step) -> list[tuple[VllmRequestHistory, encoder.Input]]:
    numbers = step.encoder_inputs or {}
    requests = [of(history.live[name]) for name in numbers if name in history.live]
    return [
        (request, item)
        for request in requests
        for item in request.inputs
        if item.number in numbers[request.id]
    ]


@once
def outputs_after(history: RunHistory[Any], step: Step) -> Mapping[str, int]:
    """Return the encoder outputs that the worker has while it computes the step."""
    new = [item for _, item in encoded(history, step)]
    return encoder.after(state_of(history).outputs, step, new)


@once
def worker_after(history: RunHistory[Any], step: Step) -> Worker:
    """Return what the worker holds while it computes the step."""
    own = state_of(history).worker
    return own if step.sent is None else worker.after(own, step.sent)


@once
def routing_after(history: RunHistory[Any], step: Step) -> Routing:
    """Return what is in the prefix cache after the step, and what routers know of it."""
    return cache_events.after(state_of(history).routing, cache_events.published(step))


@once
def groups_after(history: RunHistory[Any], step: Step) -> Groups:
    """Return what the blocks of all groups but the first contain while the step is computed.

    A block can be found as soon as a step that fills it is decided.
    """
    known, config = state_of(history).groups, history.config
    holds, unseen = dict(known.holds), set(known.unseen)
    for block, copy in step.sent.copies if step.sent is not None else ():
        if block in known.holds:
            holds[copy] = known.holds[block]
    for name in step.scheduled:
        if (account := history.live.get(name)) is None:
            continue
        request, shown = of(account), (step.group_blocks or {}).get(name)
        leaves = name in (step.finished or {}) or name in history.aborts_inside
        known_hit = 0 if request.started else history.hit_now(step, account)
        hit = known_hit or 0
        starts: Iterable[int] = [request.computed + hit]
        if known_hit is None and shown is None:  # for example, aborted in the step
            starts = range(0, request.num_tokens, int(config["block_size"]))
        # The last drafts are known tokens by now if they were right.
        first = max(request.computed + hit - (1 + speculation.drafts(config)) * request.started, 0)
        right = speculation.correct_in_step(config, request, step, step.scheduled[name])
        computed = min(history.reached(step, account), request.num_tokens + right)
        for number, group in enumerate(groups.further(config)):
            end = request.computed + hit + step.scheduled[name]
            in_prefill = not speculation.drafts(config) or end <= mamba.prefill_end(request)
            if group.kind == groups.MAMBA and in_prefill:
                table = (shown or {number: ()})[number]
                states = [
                    state
                    for start in starts
                    for state in groups.states_left(config, start, start + step.scheduled[name])
                ]
                for place, tokens in states:
                    state = number, groups.content_of(request, tokens)
                    if shown is None:
                        unseen.add(state)
                    elif place < len(table):
                        holds[table[place]] = state
                continue
            for place in range(first // group.size, group.full_blocks(computed)):
                content = number, groups.content_until(group, request, place, right)
                if shown is None:
                    unseen.add(content)
                elif number < len(shown) and any(shown[number][place : place + 1]):
                    holds[shown[number][place]] = content
                elif leaves:  # it has filled the block, and given it back as it ended
                    unseen.add(content)
    for account, tokens in history.features.loads_in(history, step):
        tables = (step.group_blocks or {}).get(account.id, ())
        for number, (group, table) in enumerate(zip(groups.further(config), tables, strict=False)):
            for place, block in enumerate(table[: tokens // group.size]):
                if block != groups.NULL_BLOCK:
                    holds[block] = number, groups.content_until(group, of(account), place)
    return Groups(holds, frozenset(unseen))


def shown_behind(history: VllmRun, request: VllmRequestHistory) -> Collection[str]:
    """Return the requests that the target has shown behind this one in its queue. By priority, the
    documents leave open in which order a step tries them."""
    shown = (history.last.waiting or ()) if history.last is not None else ()
    by_priority = history.config["policy"] == "priority"
    if by_priority or history.events or request.id not in shown:
        return ()
    return shown[shown.index(request.id) + 1 :]
