"""LoRA adapters: a worker holds at most `max_loras` of them at once.

Source: release 0.33.0: LoRAConfig.max_loras, Scheduler.schedule.
"""

from . import in_flight
from .config import VllmConfig
from .queue import Plan
from .state import Sequence


def is_overtaken(config: VllmConfig, plan: Plan, sequence: Sequence) -> bool:
    """Return whether a waiting request is set aside while others join: because it is still being
    computed (V1-R10), or because running requests use all slots for adapters (V1-R62, V1-R63)."""
    if plan.in_flight and in_flight.computed_still(plan.in_flight, sequence):
        return True
    if not config.max_loras or sequence.adapter is None:
        return False
    used = {other.adapter for other in plan.running} - {None}
    return len(used) >= config.max_loras and sequence.adapter not in used
