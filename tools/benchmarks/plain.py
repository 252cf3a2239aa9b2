"""The baseline for schedproof's search: the same predicates on requests that are drawn without
guidance.

A run is a list of requests, drawn uniformly as integers, and a configuration. The configuration is
either the published one, or each key gets one of the (small) values from schedproof's own
configurations, drawn uniformly and independently. Hypothesis (`given` on lists of tuples of
integers) or a random generator draws the numbers.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from schedproof.model.errors import InputError
from schedproof.model.faults import ConfigRefused
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import Target
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken
from schedproof.properties.search.generators import generators_of
from schedproof.properties.search.machine import MAX_REQUESTS
from schedproof.properties.search.state import StopSearch
from schedproof.spec.catalogue import Rule

SCALE = "small"
LATEST = 40  # the latest arrival; also the latest abort, in steps after the arrival
CONFIGS = 200  # how many of our own configurations to collect the values of each key from
DRAWN = settings(
    phases=[Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
Numbers = Sequence[int]  # the numbers that make up a request, in the order of `ranges`


class Plain:
    """A search: the `runs` and `steps` so far, and `found` once a run has broken a rule. `new`
    selects the failures of a step that count, as in `Search`."""

    def __init__(
        self,
        target: Target,
        system: str,
        revision: str,
        rules: Sequence[Rule],
        new: Callable[[list[Broken], Scenario], list[Broken]],
    ) -> None:
        self._target, self._system, self._revision, self._rules = target, system, revision, rules
        self._new = new
        self.runs = 0
        self.steps = 0
        self.found = False

    def run(self, values: Mapping[str, Any], requests: Sequence[Numbers]) -> None:
        """Judge one run. Skip it if its configuration is impossible."""
        self.runs += 1
        scenario = Scenario(
            system=self._system,
            revision=self._revision,
            config=dict(values),
            requests=tuple(request_of(number, request) for number, request in enumerate(requests)),
        )
        try:
            outcome = replay(self._target, scenario, self._rules, new=self._new)
        except (ConfigRefused, InputError):
            return
        self.steps += outcome.steps
        self.found = bool(outcome.broken)


def by_hypothesis(search: Plain, system: str, revision: str, is_over: Any) -> None:
    """Search small sizes until a rule is broken or the time is up."""
    _by_hypothesis(search, values_of_keys(system, revision), is_over)


def at_published_sizes(search: Plain, system: str, revision: str, is_over: Any) -> None:
    """Search the published configuration until a rule is broken or the time is up."""
    usual = full_config(system, revision, {})
    _by_hypothesis(search, {key: [value] for key, value in usual.items()}, is_over)


def _by_hypothesis(search: Plain, values: Mapping[str, Sequence[Any]], is_over: Any) -> None:
    configs = st.fixed_dictionaries({key: st.sampled_from(of) for key, of in values.items()})

    @seed(0)
    @settings(DRAWN, max_examples=10**9)
    @given(st.data())
    def runs(data: st.DataObject) -> None:
        config = data.draw(configs)
        request = st.tuples(*(st.integers(*bounds) for bounds in ranges(config)))
        requests = data.draw(st.lists(request, min_size=1, max_size=MAX_REQUESTS))
        search.run(config, requests)
        if search.found or is_over():
            raise StopSearch

    with suppress(StopSearch, Flaky):
        runs()


def by_chance(search: Plain, system: str, revision: str, is_over: Any) -> None:
    """Try random requests, without Hypothesis, until a rule is broken or the time is up."""
    values, chance = values_of_keys(system, revision), random.Random(0)
    while not (search.found or is_over()):
        config = {key: chance.choice(of) for key, of in values.items()}
        count = chance.randint(1, MAX_REQUESTS)
        requests = [[chance.randint(*bounds) for bounds in ranges(config)] for _ in range(count)]
        search.run(config, requests)


@cache
def values_of_keys(system: str, revision: str) -> Mapping[str, Sequence[Any]]:
    """Return the values that each key has in schedproof's own configurations."""
    drawn: list[dict[str, Any]] = []

    @seed(0)
    @settings(DRAWN, max_examples=CONFIGS)
    @given(generators_of(system).configs(SCALE, revision))
    def collect(config: dict[str, Any]) -> None:
        drawn.append(full_config(system, revision, config))

    collect()
    return {key: sorted({numbers[key] for numbers in drawn}, key=_order) for key in drawn[0]}


def _order(value: Any) -> tuple[bool, Any]:
    """Return a sort key that puts an unbounded pool first."""
    return (value is not None, value or 0)


def ranges(config: Mapping[str, Any]) -> Sequence[tuple[int, int]]:
    """Return the bounds of each number: arrival, prompt, max_tokens, output_len, shared prompt,
    priority and abort."""
    pool = config["block_size"] * (config.get("num_blocks") or 16)
    longest = config.get("max_model_len") or pool
    lengths = (1, longest)
    return ((0, LATEST), lengths, lengths, lengths, (0, MAX_REQUESTS - 1), (-1, 2), (0, 2 * LATEST))


def request_of(number: int, numbers: Numbers) -> Request:
    """Return request `number`, described by `numbers`. One request in two is aborted, at most
    `LATEST` steps after its arrival."""
    arrival, prompt, max_tokens, output_len, says, priority, patience = numbers
    return Request(
        id=f"r{number}",
        arrival=arrival,
        prompt=((f"p{says}", prompt),),
        max_tokens=max_tokens,
        output_len=min(output_len, max_tokens),
        priority=priority,
        abort_at=arrival + patience if patience <= LATEST else None,
    )
