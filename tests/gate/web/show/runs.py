"""Runs to show: the document's figures, and a failure of each kind."""

from functools import cache
from typing import Any

from schedproof.gate.corpus.folder import builtin_scenarios
from schedproof.gate.web.show.recording import RecordedRun, record_run
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import Reply
from schedproof.spec.catalogue import load, select

from .... import golden_tables
from ...build import Toy
from ...trace_build import request, scenario

# Row 0 of the padding figure is this step: three chunks, then a decode step after each prefill.
FIRST_ROW = 7


def of(system: str, revision: str, requests: tuple[Request, ...], **config: Any) -> Scenario:
    """A scenario whose other keys are at their defaults."""
    full = full_config(system, revision, config)
    return Scenario(system=system, revision=revision, config=full, requests=requests)


def figure(name: str) -> dict[str, Any]:
    """The data of one of the document's figures."""
    return next(row for row in golden_tables.load("docs_figures.json") if row["name"] == name)


@cache
def admission() -> RecordedRun:
    """The figure on scheduler constraints."""
    shown = figure("scheduling_admission_constraints")
    requests = tuple(
        request(
            *(row["id"], row["arrival_step"], row["prompt_len"], row["max_output_tokens"]),
            output_len=row["total_tokens_generated"],
        )
        for row in shown["generator_requests"]
    )
    return record_run(
        of("spyre", "documented", requests, **golden_tables.config_of(shown)), name="admission"
    )


@cache
def jumps() -> RecordedRun:
    """The figure on decode padding, from its beginning; its own limit it exceeds."""
    shown = figure("scheduling_padding_tkv_jump")
    requests = tuple(
        request(row["id"], 0, row["prompt_len"], row["max_tokens"], output_len=end)
        for row in shown["derived_requests"]
        for end in [row["generated_at_end"]]
    )
    config = golden_tables.config_of(shown) | {"max_batch_tkv": 2048}
    return record_run(of("spyre", "documented", requests, **config), name="jumps")


@cache
def volume() -> RecordedRun:
    """32 requests at production scale, admitted by the document's projection, beyond the limit."""
    long = [request(f"r{n}", 0, 2000 + n * 7 % 64, 2100) for n in range(31)]
    requests = (*long, request("r31", 0, 1, 1984))
    rules = select(load("spyre"), ["SPY-R07", "SPY-R26"])
    return record_run(of("spyre", "documented", requests), rules=rules, name="volume")


@cache
def pauses() -> RecordedRun:
    """A batch that 2.5.2 pauses."""
    crowd = [request(name, 0, 12, 30) for name in "abcd"]
    return record_run(scenario(*crowd, revision="2.5.2", max_batch_tkv=64), name="pauses")


@cache
def preemption() -> RecordedRun:
    """vLLM's model preempts."""
    [known] = [
        published
        for name, published in builtin_scenarios("vllm").items()
        if name == "preempted-before-it-was-computed.json"
    ]
    return record_run(known, name="preemption")


@cache
def odd_names() -> RecordedRun:
    """Names that mean something to who draws them, and one that is longer than its place."""
    odd = ("$x$", "%{y}", "<b>&amp;</b>", "long" * 40)
    return record_run(scenario(*(request(name, 0, 3, 3) for name in odd)), name="names")


class Crashes(Toy):
    """Raises in its fourth step."""

    def start(self, *args: Any) -> Reply:
        self.left = 3
        return super().start(*args)

    def bend(self, step: dict[str, Any]) -> None:
        self.left -= 1
        if self.left < 0:
            raise IndexError("pop from an <b>empty</b> batch")


@cache
def crash() -> RecordedRun:
    """A target that raises."""
    return record_run(scenario(), Crashes(), name="crash")


class Late(Toy):
    """Does not say that any request runs, once two do."""

    decides_as = "2.1.2"

    def bend(self, step: dict[str, Any]) -> None:
        if len(step["running"]) > 1:
            step["running"] = step["running"][::-1]
            step["tkv"] += 1


@cache
def parted() -> RecordedRun:
    """A target that decides as its model, and then does not."""
    rules = select(load("spyre"), ["ALL-R07"])
    return record_run(scenario(revision="2.1.2"), Late(), rules, name="parted")
