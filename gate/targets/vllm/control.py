"""Control events of the engine core: reset the prefix cache, pause the scheduler, resume it."""

import importlib
import inspect
from typing import Any

from .observation import SchedulerView

PAUSES = {"pause_new": "PAUSED_NEW", "pause_all": "PAUSED_ALL", "resume": "UNPAUSED"}
OF_RUNNING = "reset_running_requests"
RESETS = ("reset_prefix_cache", OF_RUNNING)


def accepted_events(engine: SchedulerView) -> tuple[str, ...]:
    """Return the control events that this scheduler accepts. With a connector it accepts none,
    because a reset does not wait for the connector's transfers."""
    if engine.config.get("kv_connector"):
        return ()
    own = type(engine.scheduler)
    resets = OF_RUNNING in inspect.signature(own.reset_prefix_cache).parameters
    return (*(RESETS if resets else ()), *(PAUSES if hasattr(own, "set_pause_state") else ()))


def carry_out(engine: SchedulerView, kind: str) -> bool:
    scheduler: Any = engine.scheduler
    if kind in PAUSES:
        states = importlib.import_module("vllm.v1.core.sched.interface").PauseState
        scheduler.set_pause_state(getattr(states, PAUSES[kind]))
        return True
    if kind == OF_RUNNING:
        for name in engine.flights.drop({request.request_id for request in scheduler.running}):
            engine.drafts.take_back(name)
    return bool(scheduler.reset_prefix_cache(reset_running_requests=kind == OF_RUNNING))
