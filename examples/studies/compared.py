"""One workload on the models of all systems: the same requests, on servers of the same size.

Each server has the same number of tokens of KV cache and of slots, and the same token budget if its
system has one. Block and chunk sizes are the published ones. Counts are in steps and tokens, not in
time: a step of one system may take longer than one of another.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.scenario import Request
from ...model.systems import full_config, make_model

# Steps in a row without a computed token after which the rest will never end.
STUCK = 100


class Server(NamedTuple):
    """A revision of a system in one configuration."""

    system: str
    revision: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the system and its revision, for a table."""
        return f"{self.system} {self.revision}"


class Measured(NamedTuple):
    """The result of a workload on one server, run until every request has ended.

    Attributes:
        refused, unfinished: the numbers of requests that were refused, or never ended.
        tokens: computed in each step.
        waits: for each request, the steps from its arrival until it is first scheduled.
        preemptions: of all requests.
        again: tokens computed that the same request had computed before.
        chunk_padding: share of the positions in prefill steps that hold no token.
        decode_padding: share of the positions in decoded rectangles that hold no token.
    """

    server: Server
    refused: int
    unfinished: int
    tokens: tuple[int, ...]
    waits: tuple[int, ...]
    preemptions: int
    again: int
    chunk_padding: float
    decode_padding: float


def servers(memory: int, slots: int, budget: int, longest: int) -> tuple[Server, ...]:
    """Return a server of each system; `memory`, `budget` and `longest` (the longest request) are in
    tokens.

    Raises:
        InputError: a system cannot have such a server.
    """
    budgeted = {"max_num_seqs": slots, "max_num_batched_tokens": budget}
    whole = {"max_num_seqs": slots, "max_model_len": -(-longest // 64) * 64}
    requested = [
        ("spyre", "sound", {"num_blocks": memory // 64, "prefix_caching": True, **whole}),
        ("vllm", "documented", {"num_blocks": memory // 16, "max_model_len": longest, **budgeted}),
    ]
    for revision in ("documented", "0.2.0"):
        requested.append(("nano_vllm", revision, {"num_blocks": memory // 256, **budgeted}))
    for revision in ("documented", "head"):
        requested.append(("llmservingsim", revision, {"num_blocks": memory // 16, **budgeted}))
    return tuple(
        Server(system, revision, full_config(system, revision, config))
        for system, revision, config in requested
    )


def longest_of(requests: Iterable[Request]) -> int:
    """Return the tokens of the longest request, including its output."""
    return max(request.prompt_len + request.max_tokens for request in requests)


def measure(server: Server, requests: Sequence[Request]) -> Measured:
    """Run the workload; aborts in a scenario are performed, too."""
    model = make_model(server.system, server.revision, server.config)
    refused = {request.id for request in requests if model.refusal(request) is not None}
    coming = sorted(
        (request for request in requests if request.id not in refused),
        key=lambda request: request.arrival,
    )
    waiting = {request.id: request for request in coming}
    run = _Run(server.config)
    state, step, barren = model.initial(), 0, 0
    while waiting and barren < STUCK:
        while coming and coming[0].arrival <= step:
            state = model.arrive(state, coming.pop(0))
        leaving = [request for request in waiting.values() if request.abort_at == step]
        for request in leaving:
            if not request.abort_inside:
                state = model.abort(state, request.id)
        inside = tuple(request.id for request in leaving if request.abort_inside)
        state, seen = model.step(state, inside)
        run.note(step, seen, waiting)
        barren = 0 if seen["scheduled"] or coming else barren + 1
        for name in (*seen["finished"], *inside):
            waiting.pop(name, None)
        step += 1
    return Measured(
        server,
        len(refused),
        len(waiting),
        tuple(run.tokens),
        tuple(run.waits.values()),
        run.preemptions,
        run.again,
        _share(run.padding["chunk"], run.positions["chunk"]),
        _share(run.padding["decode"], run.positions["decode"]),
    )


class _Run:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._chunk: int | None = config.get("chunk_size")
        self._computed: Counter[str] = Counter()
        self._reached: Counter[str] = Counter()
        self.tokens: list[int] = []
        self.waits: dict[str, int] = {}
        self.preemptions = 0
        self.again = 0
        self.padding: Counter[str] = Counter()
        self.positions: Counter[str] = Counter()

    def note(self, step: int, seen: Mapping[str, Any], known: Mapping[str, Request]) -> None:
        scheduled: Mapping[str, int] = seen["scheduled"]
        self.tokens.append(sum(scheduled.values()))
        for name in seen.get("preempted", ()):
            self.preemptions += 1
            self._computed[name] = 0
        hits: Mapping[str, int] = seen.get("prefix_hit") or {}
        for name, tokens in scheduled.items():
            self.waits.setdefault(name, step - known[name].arrival)
            if not self._computed[name]:
                self._computed[name] = hits.get(name, 0)
            before, after = self._computed[name], self._computed[name] + tokens
            self.again += max(min(self._reached[name], after) - before, 0)
            self._computed[name] = after
            self._reached[name] = max(self._reached[name], after)
        if self._chunk is not None and scheduled:
            self._pad(seen, scheduled)

    def _pad(self, seen: Mapping[str, Any], scheduled: Mapping[str, int]) -> None:
        """Count the padding: Spyre computes whole chunks, and decodes a rectangle of requests
        by tkv."""
        assert self._chunk is not None
        if seen["kind"] == "prefill":
            self.positions["chunk"] += self._chunk
            self.padding["chunk"] += self._chunk - sum(scheduled.values())
        else:
            rectangle = len(scheduled) * seen["tkv"]
            self.positions["decode"] += rectangle
            self.padding["decode"] += rectangle - sum(self._computed[name] for name in scheduled)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def check_servers(memory: int, slots: int, budget: int) -> None:
    """Raise InputError if such servers are impossible."""
    for name, value, least in (
        ("--tokens", memory, 256),
        ("--slots", slots, 1),
        ("--budget", budget, slots),
    ):
        if value < least:
            raise InputError(name, f"{value}; valid: at least {least}")
