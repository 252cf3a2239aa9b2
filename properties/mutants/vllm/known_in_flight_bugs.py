"""Published bugs of vLLM with steps in flight or with a connector, brought back.

Three have no number in the list of bugs that the others are from: VLL-057 is vllm issue 45406,
VLL-058 issue 57841, VLL-059 issue 49674.
"""

from typing import Any

import msgspec

from ....model import members
from ....model.pool import Pool
from ....model.vllm import connector, in_flight, scheduler
from ....model.vllm.config import VllmConfig
from ....model.vllm.plan import Plan
from ....model.vllm.state import Flight, Sequence, State
from ..mutant import replaced, together
from . import loads
from .mutants import in_scheduler, mutant


def no_placeholder(original: Any) -> Any:
    """VLL-014: a token comes that was promised before its request was preempted, and an assertion
    fails."""

    def complete(config: VllmConfig, state: State, flight: Flight) -> Any:
        for one in state.waiting:
            assert flight.get(one.id) is None, f"{one.id} has no placeholder left"
        return original(config, state, flight)

    return complete


def chunks_promise(original: Any) -> Any:
    """VLL-015: a chunk that leaves a part of the prompt promises a token. The report has no cause;
    this is the one that the list of bugs supposes."""

    def ahead(config: VllmConfig, one: Sequence, coming: Any) -> Sequence:
        if coming is None:
            return one._replace(promised=one.promised + 1)
        return original(config, one, coming)  # type: ignore[no-any-return]

    return ahead


def behind_the_head(policy: str) -> Any:
    """VLL-011 and, for requests that have priorities, VLL-057: what has landed is only looked at
    after the requests that go before it, and a head without room ends the round."""

    def make(original: Any) -> Any:
        def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
            if config.policy != policy or not plan.waiting:
                return original(config, plan)  # type: ignore[no-any-return]
            head = plan.waiting[0]
            before = [one for one in plan.parked if _key(policy, one) < _key(policy, head)]
            after: Plan = original(config, plan._replace(parked=tuple(before)))
            behind = [one for one in plan.parked if one not in before]
            after = after._replace(parked=(*after.parked, *behind))
            if members.find(after.waiting, head.id) is not None:
                return after
            return admit_waiting(config, after)

        return admit_waiting

    return make


def _key(policy: str, one: Sequence) -> tuple[int, int]:
    return (one.priority if policy == "priority" else 0, one.arrival)


def no_room_for_lookahead(original: Any) -> Any:
    """VLL-012: a load begins without the block that the drafter needs in the step after it."""

    def park(config: VllmConfig, *more: Any) -> Any:
        return original(msgspec.structs.replace(config, num_lookahead_tokens=0), *more)

    return park


def all_of_it_loaded(original: Any) -> Any:
    """VLL-023: a load may cover the whole prompt, and an assertion fails that something is left to
    compute."""

    def landed(config: VllmConfig, pool: Pool, one: Sequence) -> Any:
        assert one.computed < one.num_tokens, f"nothing is left to compute of {one.id}"
        return original(config, pool, one)

    return landed


def every_draft_counts(original: Any) -> Any:
    """VLL-056: a request is passed over although drafts on their way may be wrong, and tokens be
    left to compute."""

    def passed_over(config: VllmConfig, one: Sequence) -> bool:
        if original(config, one):
            return True
        coming = one.promised + one.hoped
        return coming > 0 and one.generated + coming >= one.max_tokens

    return passed_over


def parked_take_slots(original: Any) -> Any:
    """VLL-038: parked requests count as running."""

    def admit_waiting(config: VllmConfig, plan: Plan) -> Plan:
        slots = max(config.max_num_seqs - len(plan.parked), 0)
        return original(  # type: ignore[no-any-return]
            msgspec.structs.replace(config, max_num_seqs=slots), plan
        )

    return admit_waiting


KNOWN_BUGS = (
    mutant("a promise too few", "ALL-R01", in_scheduler("complete", no_placeholder), bug="VLL-014"),
    mutant(
        "a chunk promises a token",
        "V1-P01",
        replaced(in_flight, "_ahead", chunks_promise),
        bug="VLL-015",
    ),
    mutant(
        "landed behind a head without room",
        "ALL-R10",
        in_scheduler("admit_waiting", behind_the_head("fcfs")),
        bug="VLL-011",
        alone=True,
    ),
    mutant(
        "landed behind a more important one",
        "ALL-R10",
        in_scheduler("admit_waiting", behind_the_head("priority")),
        bug="VLL-057",
        alone=True,
    ),
    mutant(
        "loads take what others need",
        "ALL-R10",
        replaced(connector, "promised_blocks", loads.nothing_promised),
        bug="VLL-058",
        alone=True,
    ),
    mutant(
        "all of it loaded",
        "ALL-R01",
        replaced(connector, "landed", all_of_it_loaded),
        bug="VLL-023",
    ),
    mutant(
        "freed while it is loaded",
        "V1-R20",
        replaced(scheduler, "abort", loads.frees_what_is_written),
        bug="VLL-035",
    ),
    mutant(
        "parked take slots",
        "ALL-R10",
        in_scheduler("admit_waiting", parked_take_slots),
        bug="VLL-038",
        alone=True,
    ),
    mutant(
        "preempted for nothing",
        "V1-R24",
        together(
            replaced(scheduler, "connector", loads.unaware),
            replaced(scheduler, "preempt", loads.preempted_for_nothing),
        ),
        bug="VLL-059",
        alone=True,
    ),
    mutant(
        "drafts on their way count as its last tokens",
        "V1-P01",
        replaced(in_flight, "passed_over", every_draft_counts),
        bug="VLL-056",
        alone=True,
    ),
    mutant(
        "no room for the lookahead",
        "V1-R21",
        replaced(connector, "park", no_room_for_lookahead),
        bug="VLL-012",
    ),
)
