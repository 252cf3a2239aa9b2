"""Mutants of vLLM V1 with parts of prompts that an encoder computes, and published bugs there."""

from typing import Any

from ....model.vllm import encoder
from ....model.vllm.config import VllmConfig
from ....model.vllm.encoder import EncoderPlan, Fit
from ....model.vllm.state import Sequence
from ..faulty_targets import AcceptsEverything
from ..mutant import Plant, replaced
from .mutants import mutant


def in_encoder(name: str, make: Any) -> Plant:
    """A function of the encoder with a fault."""
    return replaced(encoder, name, make)


def counted_as_computed(original: Any) -> Any:
    """What was to be computed for a request that is preempted in the same step counts as computed:
    release 0.33.0, by priority."""

    def taken_back(plan: EncoderPlan, one: Sequence, others: Any) -> EncoderPlan:
        computes = {name: places for name, places in plan.computes.items() if name != one.id}
        return plan._replace(computes=computes)

    return taken_back


def a_hit_has_its_output(original: Any) -> Any:
    """Where the first tokens of an input are computed, or cached, its output counts as there."""

    def fit(config: VllmConfig, plan: EncoderPlan, one: Sequence, start: int, *more: Any) -> Fit:
        found: Fit = original(config, plan, one, start, *more)
        begun = [n for n in found.inputs if one.inputs[n].start < start]
        return found._replace(inputs=tuple([n for n in found.inputs if n not in begun]))

    return fit


def budget_of_each(original: Any) -> Any:
    """The budget is that of a request, not of a step."""

    def fit(config: VllmConfig, plan: EncoderPlan, *more: Any) -> Fit:
        found: Fit = original(config, plan._replace(budget=config.encoder_budget), *more)
        return found

    return fit


def no_bound(original: Any) -> Any:
    """Outputs are kept for ever."""
    return lambda config, found, kept: found.plan


def no_request_reads(original: Any) -> Any:
    """Outputs may be dropped that other requests need."""
    return lambda holders: set()


def computed_once_more(original: Any) -> Any:
    """An output that is kept is computed again."""

    def fit(config: VllmConfig, plan: EncoderPlan, one: Sequence, *more: Any) -> Fit:
        found: Fit = original(config, plan, one, *more)
        kept = [place for place in found.one.needs if place not in one.needs]
        return found._replace(inputs=tuple(sorted((*found.inputs, *kept))))

    return fit


def stops_at_each(original: Any) -> Any:
    """A request stops at each encoder input and continues in the next step."""

    def fit(config: VllmConfig, plan: EncoderPlan, one: Sequence, start: int, *more: Any) -> Fit:
        found: Fit = original(config, plan, one, start, *more)
        starts = [one.inputs[place].start for place in found.inputs]
        later = [begins for begins in starts if begins > start]
        if not later:
            return found
        tokens, before = later[0] - start, len(found.inputs) - len(later)
        return found._replace(tokens=tokens, inputs=found.inputs[:before], twice=())

    return fit


def nothing_to_compute(original: Any) -> Any:
    """VLL-051: a request whose encoder inputs are all there has none to compute, and that counts as
    one that cannot be scheduled."""

    def fit(*asked: Any) -> Fit:
        found: Fit = original(*asked)
        return found._replace(tokens=0) if found.one.needs and not found.inputs else found

    return fit


MUTANTS = (
    mutant("a victim's inputs count", "V1-R29", in_encoder("taken_back", counted_as_computed)),
    mutant("a hit has its output", "V1-R29", in_encoder("fit", a_hit_has_its_output)),
    mutant("encoder budget of each", "V1-R30", in_encoder("fit", budget_of_each), alone=True),
    mutant("outputs are kept for ever", "V1-R31", in_encoder("room", no_bound)),
    mutant("encoded again", "V1-R32", in_encoder("fit", computed_once_more), alone=True),
    mutant(
        "dropped while it is read", "V1-R34", in_encoder("needed", no_request_reads), alone=True
    ),
    mutant("stops at each input", "V1-R33", in_encoder("fit", stops_at_each), alone=True),
    mutant(
        "nothing to encode is no admission",
        "ALL-R10",
        in_encoder("fit", nothing_to_compute),
        bug="VLL-051",
        alone=True,
    ),
    # An encoder input that is larger than the cache is accepted, and waited for.
    mutant(
        "larger than the encoder cache",
        "ALL-R10",
        target=AcceptsEverything,
        bug="VLL-032",
        alone=True,
    ),
)
