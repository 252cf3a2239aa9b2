"""Workloads: runs at sizes that the state machine does not draw.

The state machine draws at most eight requests, which shrink well. Some faults need more: 32 members
at once, a thousand requests one after another, a long idle time, an answer of a thousand tokens, or
a pool whose blocks are all reused. Each *shape* is a kind of run that reaches some of these sizes.
A whole run is drawn as a scenario from a seed, so it can be replayed and shrunk like any other.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from msgspec import structs

from ...model.errors import InputError
from ...model.pool import Content, prefix
from ...model.scenario import Control, Event, Request, Scenario, Segment
from ...model.systems import Model, full_config, make_model
from ..checking.translation import with_fixed
from ..history.bounds import bounds_of
from .generators import (
    TIME_STAMP,
    Generators,
    drafts_of,
    generators_of,
    has_priorities,
    more_fields_of,
    pictures_of,
)

Range = tuple[int, int]
UNBOUNDED = 4096  # tokens of a request, if nothing bounds it
TRIES = 20  # how many configurations to draw at most, until the model accepts one
VERIFICATIONS = 12  # the longest list of a request's correct drafts


class Shape(NamedTuple):
    """A kind of run. A pair contains the smallest and the largest value.

    Attributes:
        requests: the number of requests in the run.
        burst: the number of requests that arrive before the same step.
        gap: the number of steps between two bursts.
        prompt, output: the lengths of prompts and answers, in tokens.
        sixteenths: whether the lengths of prompts are given in sixteenths of a block, not in
            tokens.
        shared: percentage of prompts that begin like an earlier one.
        aborted: percentage of requests that are aborted.
        long_prompts: one in `long_prompts` prompts is long: a quarter to three quarters of the
            largest length. The answer to a long prompt is not cut short. 0 means that no prompt is
            long.
        common: percentage of prompts that begin like the first prompt, which is then the longest.
            With 100, every prompt begins with the whole first prompt, and the first prompt arrives
            before the others.
        together: percentage of answers that are one token shorter than the previous answer. If each
            step admits one request, the two requests then end in the same step.
        patience: the largest number of steps before a request is aborted; 0 means one step for each
            token of its output.
        unused: the number of tokens by which max_tokens exceeds the output, in half of the
            requests.
        longest_answer: the output of the first request in the largest run, in tokens. The first
            long prompt of that run is then as long as the limits allow. 0 means that both lengths
            are drawn as usual.
        returns_after: how many steps after the last request the first long prompt arrives once
            more; 0 means that it does not.
        fills_pool: whether each burst fills the pool. Its prompts then consist of full blocks. Once
            each request has taken one more block, the pool is full, give or take a block or two.
        nearly_longest: whether a long prompt is only a few tokens shorter than the largest length,
            and its answer takes the remaining tokens.
        operated: whether an operator performs control events between the bursts.
    """

    requests: Range
    burst: Range
    gap: Range
    prompt: Range
    output: Range
    shared: int = 25
    aborted: int = 5
    long_prompts: int = 0
    common: int = 0
    together: int = 0
    patience: int = 0
    sixteenths: bool = False
    unused: Range = (0, 0)
    longest_answer: int = 0
    returns_after: int = 0
    fills_pool: bool = False
    nearly_longest: bool = False
    operated: bool = False


SHAPES: Mapping[str, Shape] = {
    "crowd": Shape((80, 100), (12, 40), (0, 12), (1, 140), (60, 120), long_prompts=42),
    "packed": Shape((30, 60), (8, 40), (0, 12), (1, 300), (20, 120), aborted=10),
    "long": Shape(
        *((520, 1100), (1, 4), (1, 4), (1, 24), (1, 4)), shared=25, aborted=40, sixteenths=True
    ),
    "idle": Shape(
        (8, 16), (1, 3), (1, 600), (1, 100), (1, 20), shared=60, aborted=10, sixteenths=True
    ),
    "deep": Shape(
        *((3, 14), (1, 2), (0, 30), (1, 40), (1030, 1200)),
        aborted=0,
        long_prompts=4,
        unused=(44_000, 62_000),
        longest_answer=4200,
        returns_after=600,
    ),
    "loose": Shape((12, 24), (1, 4), (0, 9), (1, 1500), (1, 60), shared=75, aborted=10),
    "full": Shape((300, 420), (80, 160), (0, 1), (1, 60), (8, 32), long_prompts=100, common=25),
    "scarce": Shape(
        *((24, 48), (1, 6), (0, 9), (1, 100), (1, 40)), shared=75, aborted=15, sixteenths=True
    ),
    "wide": Shape(
        *((40, 48), (8, 32), (0, 40), (600, 4600), (60, 300)),
        aborted=30,
        common=75,
        patience=600,
        unused=(6000, 24_000),
    ),
    "brim": Shape(
        *((36, 72), (9, 18), (24, 36), (1, 1), (3, 12)), shared=0, aborted=0, fills_pool=True
    ),
    "whole": Shape(
        *((32, 60), (10, 30), (20, 60), (1, 20), (40, 120)),
        aborted=0,
        long_prompts=3,
        nearly_longest=True,
    ),
    "operated": Shape((30, 60), (2, 6), (6, 14), (1, 120), (4, 30), shared=75, operated=True),
    "sharers": Shape(
        *((350, 430), (310, 330), (2, 8), (1, 32), (5, 9)), aborted=0, common=100, sixteenths=True
    ),
    "relay": Shape((16, 24), (1, 2), (20, 160), (1, 200), (150, 400), shared=0, aborted=0),
    # Like `sharers`, for schedulers that admit one request in each step: all answers are longer
    # than it takes to fill the batch.
    "joiners": Shape(
        *((40, 64), (31, 48), (2, 90), (1, 32), (80, 120)),
        aborted=1,
        common=100,
        together=85,
        sixteenths=True,
    ),
}
# What an operator does between two bursts. A run goes through these operations in random order.
OPERATIONS: Sequence[tuple[Control, ...]] = (
    *2 * (("sleep", "wake_up"),),
    *(("pause_all", "resume"), ("pause_new", "resume")),
    *(("reset_running_requests",), ("reset_prefix_cache",)),
)
FEATURES = "features"  # lists configurations: the runs after the first take them in turn
MORE = "more runs"  # how many runs a gate does in addition to those of its profile
POOL = 64  # blocks, for a target that names no pool
SPARE_BLOCKS = (0, 0, 1, -1, 2)  # free once a burst fills the pool; -1: one block is missing


def shapes_of(system: str) -> list[str]:
    """Return the shapes for which a system has workloads (possibly none)."""
    return [shape for shape in SHAPES if shape in _workloads_of(system)]


def _workloads_of(system: str) -> Mapping[str, Mapping[str, Sequence[Any]]]:
    return getattr(generators_of(system), "WORKLOADS", {})


def number_of_runs(system: str, shape: str, number: int) -> int:
    """Return how many runs a gate does if its profile has `number` runs of each shape."""
    more: Any = _workloads_of(system)[shape].get(MORE, 0)
    return number + int(more)


def workloads(
    system: str,
    revision: str,
    shape: str,
    scale: Mapping[str, Any],
    fixed: Mapping[str, Any],
    *,
    seed: int,
    number: int,
) -> Iterator[Scenario]:
    """Draw runs of a shape: first the smallest run, then the largest, then random ones. The
    smallest run has no optional feature, and uses the first value of each of the shape's other
    keys.

    Args:
        scale: a configuration that the target accepts, to which the shape's own keys are added.
        fixed: configuration keys with a fixed value.
        seed: the same seed gives the same runs.
        number: the number of runs.
    """
    keys = _workloads_of(system)[shape]
    usual = full_config(system, revision, {}).keys()
    features = keys.get(FEATURES, [{}])
    for run in range(number):
        draw = Random(f"{system} {shape} {seed} {run}")
        choices = {key: values for key, values in keys.items() if key not in (FEATURES, MORE)}
        if run:
            choices |= {key: [value] for key, value in features[(run - 1) % len(features)].items()}
        else:
            choices = {key: values[:1] for key, values in choices.items() if key in usual}
        started = _started(draw, system, revision, {**scale}, choices, fixed)
        if started is not None:
            config, model = started
            longest = min(bounds_of(system).limits(config), default=UNBOUNDED)
            made = _Requests(draw, SHAPES[shape], generators_of(system), config, model, longest)
            scenario = Scenario(
                system=system, revision=revision, config=config, requests=made.all(run)
            )
            events = _events(draw, scenario, model) if SHAPES[shape].operated else ()
            yield structs.replace(scenario, events=events)


def _events(draw: Random, scenario: Scenario, model: Model) -> tuple[Event, ...]:
    """Draw the control events of a run: an operation between each burst and the next."""
    possible = [kinds for kinds in OPERATIONS if {*kinds} <= {*model.controls}]
    arrivals = sorted({request.arrival for request in scenario.requests})
    events: list[Event] = []
    deck: list[tuple[Control, ...]] = []
    for begin, end in itertools.pairwise(arrivals):
        deck = deck or draw.sample(possible, len(possible))
        for kind in deck.pop() if deck else ():
            # The next burst may arrive before the operator resumes the scheduler. Some pauses are
            # so long that running requests end in the meantime.
            latest = end + (draw.choice((1, 25)) if kind == "resume" else 1)
            earliest = max(begin + 1, events[-1].step + 1 if events else 0)
            events.append(Event(max(draw.randint(begin + 1, latest), earliest), kind))
    return tuple(events)


def _started(
    draw: Random,
    system: str,
    revision: str,
    scale: dict[str, Any],
    keys: Mapping[str, Sequence[Any]],
    fixed: Mapping[str, Any],
) -> tuple[dict[str, Any], Model] | None:
    """Draw a configuration that the model accepts, and return it with the model. Return None if
    `fixed` rules out every configuration."""
    for _ in range(TRIES):
        drawn = scale | {key: draw.choice(values) for key, values in keys.items()}
        try:
            config = full_config(system, revision, with_fixed(system, revision, drawn, fixed))
            return config, make_model(system, revision, config)
        except InputError:
            continue
    return None


class _Requests:
    """Draws the requests of one run, one after another."""

    def __init__(
        self,
        draw: Random,
        shape: Shape,
        generators: Generators,
        config: Mapping[str, Any],
        model: Model,
        longest: int,
    ) -> None:
        self._draw = draw
        self._shape = shape
        self._generators = generators
        self._config = config
        self._model = model
        self._longest = longest  # tokens of a request
        self._made: list[Request] = []
        self._lengths: list[int] = []  # of the prompts in a burst that fills the pool
        self._pictures = pictures_of(generators, config)

    def all(self, run: int) -> tuple[Request, ...]:
        draw, shape = self._draw, self._shape
        wanted = shape.requests[run] if run < 2 else draw.randint(*shape.requests)
        step, bursts = 0, 1
        left_in_burst = 1 if shape.common == 100 else self._burst()
        for number in range(wanted):
            if left_in_burst == 0:
                step += draw.randint(*shape.gap)
                left_in_burst = self._burst()
                bursts += 1
            left_in_burst -= 1
            request = self._request(number, step, run == 1)
            if run % 2 and has_priorities(self._generators, self._config):
                request = structs.replace(request, priority=-bursts)
            if self._model.refusal(request) is None:
                self._made.append(request)
        if shape.returns_after and len(self._made) > 1:
            again, step = self._made[1], step + shape.returns_after
            self._made.append(structs.replace(again, id=f"r{wanted}", arrival=step))
        return tuple(self._made)

    def _burst(self) -> int:
        """Draw the number of requests in a burst and, if it fills the pool, their lengths."""
        draw, block = self._draw, self._config["block_size"]
        count = draw.randint(*self._shape.burst)
        if self._shape.fills_pool:
            pool = self._config["num_blocks"] or POOL
            held = max(pool - count - draw.choice(SPARE_BLOCKS), count)
            ends = [0, *sorted(draw.sample(range(1, held), count - 1)), held]
            self._lengths = [(end - begin) * block for begin, end in itertools.pairwise(ends)]
        return count

    def _request(self, number: int, step: int, in_largest: bool) -> Request:
        draw, shape, name = self._draw, self._shape, f"r{number}"
        is_long = shape.long_prompts > 0 and number % shape.long_prompts == 1
        length = self._long_prompt(in_largest) if is_long else draw.randint(*shape.prompt)
        if shape.fills_pool:
            length = self._lengths.pop()
        length = self._in_tokens(length)
        prompt = self._long_content(name, length) if is_long else self._prompt(name, length)
        output = 3 if is_long and not shape.nearly_longest else draw.randint(*shape.output)
        if in_largest and not self._made:
            output = max(output, shape.longest_answer)
        together = bool(self._made and shape.together) and draw.randrange(100) < shape.together
        if together:
            output = max(self._made[-1].tokens_to_emit - 1, 1)
        early = max(output - 1, 1), draw.randint(1, output)
        whole = is_long or not self._made or shape.fills_pool or shape.common == 100
        stops = output if whole else draw.choice((output, output, output, *early))
        drawn = self._generators.fitted(self._config, prompt, None)
        prioritized = has_priorities(self._generators, self._config)
        most = output + (draw.choice((0, draw.randint(*shape.unused))) if shape.unused[1] else 0)
        drawn = drawn._replace(max_tokens=most, output_len=stops)
        fitted = self._generators.fitted(self._config, prompt, drawn)
        waits = draw.choice((0, 1, 2, 5, output // 2, output))
        drafts = drafts_of(self._generators, self._config)
        verifications = draw.randint(1, VERIFICATIONS) if drafts else 0
        if shape.patience:
            waits = draw.randint(0, shape.patience)
        gives_up = draw.randrange(100) < shape.aborted
        fields = more_fields_of(self._generators, self._config)
        more = {field: draw.choice(values) for field, values in fields.items()}
        if self._pictures:
            more["encoder_inputs"] = tuple(
                [place for place, segment in enumerate(prompt) if segment in self._pictures]
            )
        return Request(
            id=name,
            arrival=step,
            prompt=prompt,
            max_tokens=fitted.max_tokens,
            output_len=fitted.output_len,
            priority=draw.choice((0, 0, 7, TIME_STAMP, -1)) if prioritized else 0,
            abort_at=step + waits if gives_up else None,
            abort_inside=gives_up and draw.random() < 0.5,
            accepted=tuple(draw.randint(0, drafts) for _ in range(verifications)),
            **more,
        )

    def _in_tokens(self, length: int) -> int:
        block: int = self._config["block_size"]
        return max(length * block // 16, 1) if self._shape.sixteenths else length

    def _long_prompt(self, in_largest: bool) -> int:
        if self._shape.nearly_longest:
            # If few tokens are left, the lookahead exceeds the limit.
            left = self._draw.randint(1, self._draw.choice((30, 30, 3)))
            return max(self._longest - left, 1)
        length = self._draw.randint(self._longest // 4, self._longest * 3 // 4)
        if in_largest and self._shape.longest_answer and len(self._made) == 1:
            prompt = (("any", self._longest - 4),)  # room for its answer
            length = self._generators.fitted(self._config, prompt, None).prompt
        if self._shape.returns_after:
            # A request that takes a block in its last step may have taken any free block, so no
            # rule could say which blocks of this prompt must be found again.
            length -= (length - 1) % self._config["block_size"]
        return length

    def _long_content(self, name: str, length: int) -> Content:
        """Draw a prompt that begins with one of two blocks and always continues with the same
        tokens. At every depth, a cache must tell the two kinds of prompt apart, whichever of them
        it sees first."""
        block, earlier = self._config["block_size"], self._made[1 :: self._shape.long_prompts]
        if length <= block:
            return self._prompt(name, length)
        stream = name if len(earlier) < 2 else earlier[1 - len(earlier) % 2].prompt[0][0]
        return ((stream, block), (self._made[0].id, length - block))

    def _prompt(self, name: str, length: int) -> Content:
        """Draw a prompt of about `length` tokens, which may begin like an earlier one."""
        draw, block = self._draw, self._config["block_size"]
        common = self._shape.common
        if self._pictures:
            return self._pictured(name, length)
        if common and not self._made:
            length = self._in_tokens(self._shape.prompt[1])
        length = max(min(length, self._longest - 1), 1)
        if not self._made or draw.randrange(100) >= max(self._shape.shared, common):
            return ((name, length),)
        other = self._made[0] if common else draw.choice(self._made[-12:])
        if common:
            length = min(other.prompt_len + length // 4, self._longest - 1)
        whole = (*other.prompt, (f"out:{other.id}", other.tokens_to_emit))
        cut = draw.choice((other.prompt_len, block * draw.randint(1, 4), draw.randint(1, length)))
        # Use few streams, so that identical blocks follow different beginnings.
        behind = draw.choice((name, draw.choice(self._made[:2]).prompt[0][0]))
        cut = min(other.prompt_len if common == 100 else cut, length)
        cut -= cut % block if behind != name and cut > block else 0
        begin = prefix(whole, cut)
        rest = length - sum(tokens for _, tokens in begin)
        return (*begin, (behind, rest)) if rest > 0 and draw.random() < 0.8 else begin

    def _pictured(self, name: str, length: int) -> Content:
        """Draw a prompt of about `length` tokens in which text and pictures alternate. It may begin
        with whole segments of an earlier one."""
        draw = self._draw
        prompt: list[Segment] = []
        if self._made and draw.randrange(100) < self._shape.shared:
            other = draw.choice(self._made[-12:]).prompt
            prompt += other[: draw.randint(1, len(other))]
        left = min(length, self._longest - 1) - sum(tokens for _, tokens in prompt)
        while left > 0:
            picture = draw.choice(self._pictures)
            before = left if picture[1] >= left else draw.randint(1, left - picture[1])
            prompt.append((name, before))
            left -= before
            if left > 0:
                prompt.append(picture)
                left -= picture[1]
        return tuple(prompt)
