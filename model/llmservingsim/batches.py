"""A plan becomes a batch on its way through the pipeline."""

from .state import Batch, Decision, Plan, State


def built(state: State, plan: Plan, counted: bool = False) -> Decision:
    """The state with the batch of the plan; without one if nothing was scheduled.

    `counted`: its tokens count as computed from now on, not once it is done (LSS-R16).
    """
    running = plan.running
    if counted:
        running = tuple(
            [one._replace(computed=one.computed + plan.scheduled.get(one.id, 0)) for one in running]
        )
    state = state._replace(waiting=plan.waiting, running=running, pool=plan.pool)
    if not plan.scheduled:
        return Decision(state, None, plan.preempted)
    batch = Batch(state.batches, tuple(plan.scheduled.items()))
    state = state._replace(inflight=(*state.inflight, batch), batches=state.batches + 1)
    return Decision(state, batch, plan.preempted)
