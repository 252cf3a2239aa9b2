"""The worst volume of two requests is that of the worst run at small scale."""

from dataclasses import replace
from itertools import product

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.replay import replay
from schedproof.solver.spyre.volumetric import Setting, to_scenario
from schedproof.solver.spyre.worst import worst
from schedproof.spec.catalogue import load, select

LIMIT_RULE = select(load("spyre"), ["SPY-R07"])
SETTING = Setting("2.0.1", 2, block=2, chunk=2, limit=6, max_model_len=6)


def largest(formula: str, scenario: Scenario) -> int:
    """Largest batch x tkv of a run's decode steps, to its end."""
    volumes = [0]

    def watch(_: int, step: object) -> None:
        if step.kind == "decode":  # type: ignore[attr-defined]
            volumes.append(len(step.scheduled) * step.tkv)  # type: ignore[attr-defined]

    replay(ModelTarget(formula), scenario, (), watch)
    return max(volumes)


@pytest.mark.parametrize("formula", ["1.10.0", "2.0.1", "document_realigned", "common_base"])
def test_the_worst_volume_is_that_of_the_worst_run(formula):
    sizes = [
        (prompt, tokens)
        for prompt, tokens in product(range(1, 6), range(2, 7))
        if prompt + prompt % 2 + tokens <= 6
    ]
    config = {"block_size": 2, "chunk_size": 2, "max_model_len": 6, "max_batch_tkv": 6}
    runs = [
        Scenario(
            system="spyre",
            revision="sound",
            config=config,
            requests=tuple(
                Request(id=name, arrival=step, prompt=((name, prompt),), max_tokens=tokens)
                for name, step, (prompt, tokens) in (("a", 0, first), ("b", arrival, second))
            ),
        )
        for first, second, arrival in product(sizes, sizes, range(6))
    ]
    expected = max(largest(formula, scenario) for scenario in runs)
    *_, known = worst(replace(SETTING, formula=formula))
    assert known.exact
    assert SETTING.limit + known.reached == max(expected, SETTING.limit)


def test_what_was_reached_is_reached_by_the_run_given():
    *_, known = worst(SETTING)
    scenario = to_scenario(SETTING, list(known.arrivals), "sound")
    assert largest(SETTING.formula, scenario) >= SETTING.limit + known.reached
    assert replay(ModelTarget(SETTING.formula), scenario, LIMIT_RULE).broken


def test_a_batch_that_fits_whatever_it_holds_leaves_nothing_to_ask():
    assert list(worst(replace(SETTING, limit=12))) == []
