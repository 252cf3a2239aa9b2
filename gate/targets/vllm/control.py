"""Control events: an operator resets or pauses the scheduler, or puts the engine to sleep.

The release's own code performs the events. Sleeping and waking up are methods of the engine core,
which has no workers and no memory here.

Source: release 0.33.0: Scheduler.reset_prefix_cache, PauseState, EngineCore.sleep and wake_up.
"""

import importlib
import inspect
from typing import Any

from .encoder import KEYS as ENCODER_KEYS
from .observation import SchedulerView
from .sessions import KEY as STREAMING_INPUTS

PAUSES = {"pause_new": "PAUSED_NEW", "pause_all": "PAUSED_ALL", "resume": "UNPAUSED"}
OF_RUNNING = "reset_running_requests"
RESETS = ("reset_prefix_cache", OF_RUNNING)
SLEEP = ("sleep", "wake_up")


def accepted_events(engine: SchedulerView) -> tuple[str, ...]:
    """Return the control events that this scheduler accepts. With a connector or sessions, it
    accepts none, because a reset does not wait for these. With an encoder, the engine cannot sleep,
    because sleeping would empty the encoder cache as well."""
    if engine.config.get("kv_connector") or engine.config.get(STREAMING_INPUTS):
        return ()
    own = type(engine.scheduler)
    resets = OF_RUNNING in inspect.signature(own.reset_prefix_cache).parameters
    pauses = hasattr(own, "set_pause_state")
    encodes = any(engine.config.get(key) for key in ENCODER_KEYS)
    return (
        *(RESETS if resets else ()),
        *(PAUSES if pauses else ()),
        *(SLEEP if resets and pauses and not encodes and can_sleep() else ()),
    )


def can_sleep() -> bool:
    """Return whether the release's engine core pauses the scheduler when it goes to sleep."""
    return "mode" in inspect.signature(_engine_core().sleep).parameters


def carry_out(engine: Any, kind: str) -> bool:
    """Carry out a control event. Return whether it changed anything."""
    scheduler: Any = engine.scheduler
    if kind in PAUSES:
        states = importlib.import_module("vllm.v1.core.sched.interface").PauseState
        scheduler.set_pause_state(getattr(states, PAUSES[kind]))
        return True
    if kind in (OF_RUNNING, "sleep"):
        engine.drop_results({request.request_id for request in scheduler.running})
    if kind == "sleep":
        _core_of(scheduler).sleep(level=1, mode="keep")
        return True
    if kind == "wake_up":
        _core_of(scheduler).wake_up()
        return True
    return bool(scheduler.reset_prefix_cache(reset_running_requests=kind == OF_RUNNING))


class Executor:
    """Stands in for the executor, whose workers have no memory to discard or to allocate."""

    is_sleeping = False

    def sleep(self, level: int) -> None:
        """Discard the memory of the workers."""

    def wake_up(self, tags: Any) -> None:
        """Allocate the memory of the workers again."""

    def collective_rpc(self, method: str) -> None:
        """Call a method of each worker."""

    def reset_mm_cache(self) -> None:
        """Empty the workers' caches of inputs."""

    def reset_encoder_cache(self) -> None:
        """Empty the workers' encoder caches."""


def _core_of(scheduler: Any) -> Any:
    """Return an engine core that has nothing but this scheduler."""
    core: Any = object.__new__(_engine_core())
    core.scheduler, core.model_executor = scheduler, Executor()
    core.mm_receiver_cache = None
    return core


def _engine_core() -> Any:
    return importlib.import_module("vllm.v1.engine.core").EngineCore
