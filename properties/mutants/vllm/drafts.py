"""Mutants of vLLM V1's speculative decoding."""

from typing import Any

from ....model.vllm import kv_cache, scheduler, speculation
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Sequence
from ..mutant import Mutant, replaced


def mutant(name: str, rule: str, module: Any, function: str, make: Any, **more: Any) -> Mutant:
    """A function with a fault."""
    plant = replaced(module, function, make)
    return Mutant(name, rule, plant, revision="documented", system="vllm", **more)


def no_lookahead(original: Any) -> Any:
    """Blocks for what is computed, and none for the drafter."""
    return lambda config, covered: covered


def every_draft_is_right(original: Any) -> Any:
    """Drafts are emitted without being verified."""
    return lambda one, drafts: drafts


def drafts_are_in_vain(original: Any) -> Any:
    """Drafts are computed, and one token comes out."""
    return lambda one, drafts: 0


def wrong_drafts_count(original: Any) -> Any:
    """The first draft that is wrong counts as computed."""

    def verified(config: VllmConfig, one: Sequence, drafts: int, emitted: int) -> Sequence:
        after: Sequence = original(config, one, drafts, emitted)
        return after._replace(computed=min(one.computed, after.computed + 1))

    return verified


def drafts_survive(original: Any) -> Any:
    """A request that was preempted keeps its drafts."""

    def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
        after: Plan = original(config, plan, victim)
        return after._replace(
            waiting=tuple(
                one._replace(drafted=victim.drafted) if one.id == victim.id else one
                for one in after.waiting
            )
        )

    return preempt


def beyond_the_length(original: Any) -> Any:
    """Drafts are computed at positions that the model does not have."""
    return lambda config, one: one.num_uncomputed_tokens + one.drafted


MUTANTS = (
    mutant("no lookahead", "V1CP-R30", kv_cache, "slots", no_lookahead, alone=True),
    mutant(
        "every draft is right", "V1CP-R35", speculation, "right", every_draft_is_right, alone=True
    ),
    mutant("drafts come to nothing", "V1CP-R35", speculation, "right", drafts_are_in_vain),
    mutant(
        "a wrong draft counts", "V1CP-R05", speculation, "verified", wrong_drafts_count, alone=True
    ),
    mutant("drafts survive", "V1-R02", scheduler, "preempt", drafts_survive, alone=True),
    mutant("drafts beyond the length", "V1-R02", speculation, "wanted", beyond_the_length),
)
