"""How fast an engine is, and how long it still takes."""

import time
from collections.abc import Callable

from ..events import Progress

SETTLED = 1.0  # seconds until a rate says something


class Pace:
    """The progress of the engine that runs, in words.

    `clock` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._engine = ""
        self._began = 0.0
        self._first = 0

    def words(self, event: Progress) -> str:
        """Engine, runs of how many, runs a second, time left, steps."""
        if event.engine != self._engine:
            self._engine, self._began, self._first = event.engine, self._clock(), event.runs
        parts = [f"{event.engine}: run {event.runs} of {event.of}"]
        seconds = self._clock() - self._began
        done = event.runs - self._first
        if event.shrinking:
            parts.append("shrinking")
        elif seconds >= SETTLED and done > 0:
            rate = done / seconds
            parts += [f"{rate:.3g} runs/s", f"{_duration((event.of - event.runs) / rate)} left"]
        return ", ".join([*parts, f"{event.steps} steps"])


def _duration(seconds: float) -> str:
    """As `40 s`, `3 min 05 s` or `2 h 10 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
