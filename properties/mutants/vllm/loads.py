"""Mutants of vLLM V1 with a connector."""

from types import SimpleNamespace
from typing import Any

from ....model.pool import Pool
from ....model.vllm import connector, in_flight, scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Sequence, State
from ..mutant import Mutant, Plant, replaced, together


def mutant(name: str, rule: str, plant: Plant, alone: bool = False) -> Mutant:
    """A mutant of the documented revision."""
    return Mutant(name, rule, plant, revision="documented", system="vllm", alone=alone)


def at_once(original: Any) -> Any:
    """A load counts as landed as soon as it has begun."""

    def steps_on(config: VllmConfig, state: State) -> State:
        parked = tuple([one._replace(loading=None) for one in state.parked])
        return original(config, state._replace(parked=parked))  # type: ignore[no-any-return]

    return steps_on


def frees_what_is_written(original: Any) -> Any:
    """An abort gives back blocks that a load writes still."""

    def abort(config: VllmConfig, state: State, request_id: str) -> State:
        parked = tuple([one._replace(loading=None) for one in state.parked])
        left: State = original(config, state._replace(parked=parked), request_id)
        still = {one.id: one.loading for one in state.parked}
        return left._replace(
            parked=tuple([one._replace(loading=still[one.id]) for one in left.parked])
        )

    return abort


def keeps_what_was_written(original: Any) -> Any:
    """Blocks of a request that was aborted while it was loaded never come back."""

    def steps_on(config: VllmConfig, state: State) -> State:
        loaded: State = original(config, state._replace(leaving=()))
        return loaded._replace(leaving=state.leaving)

    return steps_on


def nothing_promised(original: Any) -> Any:
    """A load takes what is free, whatever others need."""
    return lambda config, holders: 0


def parked_go_last(original: Any) -> Any:
    """A parked request joins only when no other waits."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        if not plan.waiting:
            return original(config, plan)  # type: ignore[no-any-return]
        held: Plan = original(config, plan._replace(parked=()))
        return held._replace(parked=(*plan.parked, *held.parked))

    return admit_waiting


def nothing_waits(original: Any) -> Any:
    """Blocks are free at once that a decision on its way writes."""
    return lambda flights, one: False


def preempted_for_nothing(original: Any) -> Any:
    """A request is preempted whose blocks wait, so that the next one is preempted, too."""

    def preempt(config: VllmConfig, plan: Plan, victim: Sequence) -> Plan:
        if not (config.loads and in_flight.computed_still(plan.in_flight, victim)):
            return original(config, plan, victim)  # type: ignore[no-any-return]
        waits = victim._replace(written_by=len(plan.in_flight))
        after: Plan = original(config, plan, victim)
        return after._replace(pool=plan.pool, leaving=(*plan.leaving, waits))

    return preempt


def unaware(original: Any) -> Any:
    """The scheduler ignores which blocks a decision on its way writes."""
    return SimpleNamespace(**{**vars(original), "written_still": nothing_waits(None)})


def nothing_is_sent(original: Any) -> Any:
    """Blocks that are sent are free as soon as their request has ended."""
    return connector.free


def failures_are_ignored(original: Any) -> Any:
    """What failed to load counts as computed."""
    return lambda config, one, hit: one.computed


def no_load_ends_its_request(original: Any) -> Any:
    """What failed to load is computed, whatever the policy."""
    return lambda config, state: (state, {})


def nothing_offered(original: Any) -> Any:
    """The scheduler does not ask the connector."""
    return lambda config, one, hit: 0


def part_is_enough(original: Any) -> Any:
    """Without reserve_full_isl a load begins where what is loaded fits, as in release 0.33.0."""

    def whole_fits(config: VllmConfig, pool: Pool, one: Sequence, beside: int) -> bool:
        return not config.reserve_full_isl or original(config, pool, one, beside)

    return whole_fits


MUTANTS = (
    mutant("never loads", "V1-R27", replaced(connector, "offered", nothing_offered)),
    mutant("part fits", "ALL-R10", replaced(connector, "whole_fits", part_is_enough), alone=True),
    mutant("sent and free", "V1-R25", replaced(connector, "sent", nothing_is_sent), alone=True),
    mutant(
        "failures ignored",
        "V1-R26",
        replaced(connector, "arrives", failures_are_ignored),
        alone=True,
    ),
    mutant("failures end none", "V1-R28", replaced(connector, "fail", no_load_ends_its_request)),
    mutant("a load lands at once", "V1-R20", replaced(connector, "steps_on", at_once)),
    mutant("blocks given away", "V1-R20", replaced(scheduler, "abort", frees_what_is_written)),
    mutant(
        "blocks kept",
        "V1-R20",
        replaced(connector, "steps_on", keeps_what_was_written),
        alone=True,
    ),
    mutant("loads take all", "V1-R21", replaced(connector, "promised_blocks", nothing_promised)),
    mutant(
        "parked go last",
        "V1-R22",
        replaced(scheduler, "admit_waiting", parked_go_last),
        alone=True,
    ),
    mutant(
        "no free waits",
        "V1-R23",
        replaced(connector, "written_still", nothing_waits),
        alone=True,
    ),
    mutant(
        "preempted for nothing",
        "V1-R24",
        together(
            replaced(scheduler, "connector", unaware),
            replaced(scheduler, "preempt", preempted_for_nothing),
        ),
        alone=True,
    ),
)
