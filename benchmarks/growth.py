"""What a step costs as runs grow: more requests, longer runs, larger pools; and the memory.

The model under the monitor, as the gate has it. Each point is measured in a process of its own, so
that its memory is its own.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..gate.explore.explorer import memory_mb
from ..gate.processes.worker_timeout import bounded
from ..model.scenario import Request
from ..model.systems import full_config
from ..model.target import ModelTarget
from ..properties.checking.session import Session
from ..properties.rules.registry import LOCKSTEP
from ..spec.catalogue import load
from .figure import Plan, Row

SYSTEM, REVISION = "vllm", "documented"
PROMPT, TOKENS = 48, 32  # of each request
PER_REQUEST = 8  # blocks that are enough for one
SECONDS = 600.0  # for a point


class Point(NamedTuple):
    """So many requests at a time, steps in all, and blocks of the pool."""

    requests: int
    steps: int
    blocks: int


class Spent(NamedTuple):
    """CPU seconds a step, and the most memory of the process, in MB."""

    seconds: float
    memory: float


def points(quick: bool) -> Iterator[tuple[str, Sequence[Point]]]:
    """A curve each: what grows, and its points."""
    steps = 200 if quick else 2_000
    some: Sequence[int] = (2, 64) if quick else (2, 4, 8, 16, 32, 64)
    yield "requests", [Point(one, steps, 64 * PER_REQUEST) for one in some]
    some = (100, 300) if quick else (100, 1_000, 10_000, 100_000)
    yield "steps", [Point(8, one, 64 * PER_REQUEST) for one in some]
    some = (64, 4_096) if quick else (64, 256, 1_024, 4_096, 16_384, 65_536)
    yield "blocks", [Point(8, steps, one) for one in some]


def run(point: Point) -> Iterator[Spent]:
    """Requests come as others leave, until so many steps are over.

    Raises:
        AssertionError: the model breaks a rule.
    """
    config = full_config(
        SYSTEM,
        REVISION,
        {
            "num_blocks": point.blocks,
            "max_num_seqs": point.requests,
            "enable_prefix_caching": False,
        },
    )
    rules = [rule for rule in load(SYSTEM) if rule.checked and rule.id != LOCKSTEP]
    session = Session(ModelTarget(), SYSTEM, REVISION, config, rules)
    session.monitor.history.forgets = True  # as a long trace is judged
    numbers = iter(range(10**9))
    began = time.process_time()
    for _ in range(point.steps):
        while len(session.monitor.history.live) < point.requests:
            session.add(request(next(numbers)))
        broken = session.step()
        assert not broken, broken
    yield Spent((time.process_time() - began) / point.steps, memory_mb())


def request(number: int) -> Request:
    """Requests of unequal length, so that they do not leave together."""
    name = f"r{number}"
    prompt = ((name, PROMPT + number % 7),)
    return Request(id=name, arrival=0, prompt=prompt, max_tokens=TOKENS + number % 5)


def rows(quick: bool) -> Iterator[Row]:
    """Two rows a point: time and memory; ratios are to the first point of the curve."""
    for what, curve in points(quick):
        first: Spent | None = None
        for point in curve:
            [reported] = bounded(SECONDS, run, point)
            spent = Spent(*reported)
            first = first or spent
            at: Any = getattr(point, what)
            to = f"{getattr(curve[0], what):,} {what}"
            yield Row(
                what=f"{at:,} {what}",
                value=1e6 * spent.seconds,
                unit="us/step",
                ratio=spent.seconds / first.seconds,
                to=to,
                note=f"{spent.memory:.0f} MB",
                series=f"time by {what}",
                at=at,
            )
            yield Row(
                what=f"{at:,} {what}, memory",
                value=spent.memory,
                unit="MB",
                ratio=spent.memory / first.memory,
                to=to,
                series=f"memory by {what}",
                at=at,
                is_detail=True,
            )


PLAN = Plan(
    "growth",
    "Cost as runs grow",
    f"vLLM's model under the monitor, prompts of {PROMPT} and outputs of {TOKENS} tokens; CPU of a "
    "step, and the most memory of the process",
    rows,
    axis="requests, steps or blocks",
)
