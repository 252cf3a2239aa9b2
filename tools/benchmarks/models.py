"""Measure how many steps per second each system's model takes with eight running requests."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from schedproof.model.scenario import Request
from schedproof.model.systems import Model, full_config, make_model

from .figure import FigurePlan, Row, in_turns

REQUESTS = 8
PROMPT, TOKENS = 64, 4_000  # tokens of a request; enough that none ends during a measurement


class MeasuredModel(NamedTuple):
    """A model to measure, with the configuration values that differ from the defaults."""

    name: str
    system: str
    revision: str
    config: dict[str, Any]


SUBJECTS = (
    MeasuredModel("Spyre 2.1.2", "spyre", "2.1.2", {"prefix_caching": False}),
    MeasuredModel("Spyre 2.1.2, caching", "spyre", "2.1.2", {"prefix_caching": True}),
    MeasuredModel("vLLM", "vllm", "documented", {"enable_prefix_caching": False}),
    MeasuredModel("vLLM, caching", "vllm", "documented", {"enable_prefix_caching": True}),
    MeasuredModel("nano-vLLM", "nano_vllm", "0.2.0", {"num_blocks": 1_000}),
    MeasuredModel("LLMServingSim", "llmservingsim", "head", {"enable_prefix_caching": False}),
)


def running(subject: MeasuredModel) -> tuple[Model, Any]:
    """Return the model, and a state with eight decoding requests."""
    config = full_config(subject.system, subject.revision, subject.config)
    model = make_model(subject.system, subject.revision, config)
    state = model.initial()
    for number in range(REQUESTS):
        name = f"r{number}"
        state = model.arrive(
            state,
            Request(id=name, arrival=0, prompt=((name, PROMPT),), max_tokens=TOKENS),
        )
    for _ in range(20 * REQUESTS):
        state, seen = model.step(state)
        if seen["kind"] == "decode" and len(seen["scheduled"]) == REQUESTS:
            return model, state
    raise AssertionError(f"{subject.name}: {REQUESTS} requests never decode together")


def stepping(subject: MeasuredModel, steps: int) -> Callable[[], float]:
    """Return a function that takes this many steps. Each call starts from the same state."""
    model, first = running(subject)

    def work() -> float:
        state = first
        for _ in range(steps):
            state, _ = model.step(state)
        return steps

    return work


def rows(quick: bool) -> Iterator[Row]:
    steps = 200 if quick else 1_500
    rates = in_turns([stepping(known, steps) for known in SUBJECTS], 3 if quick else 9)
    for subject, rate in zip(SUBJECTS, rates, strict=True):
        yield Row(
            what=subject.name,
            value=rate,
            unit="steps/s",
            ratio=rate / rates[0],
            to=SUBJECTS[0].name,
        )


PLAN = FigurePlan(
    "models",
    "Steps of the models",
    f"{REQUESTS} requests decode, {PROMPT} tokens of prompt each; steps per second of CPU",
    rows,
)
