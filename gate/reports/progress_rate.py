"""How fast an engine is, and how long it still takes."""

import time
from collections.abc import Callable

from ..judging.events import Progress

SETTLED = 1.0  # seconds until a rate says something


class Pace:
    """The progress of the engine that runs, in words.

    `clock` gives seconds. Shrinking is no part of the rate.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Progress | None = None
        self._heard = 0.0
        self._seconds = 0.0
        self._runs = 0

    def words(self, event: Progress) -> str:
        """Engine, runs of how many, time left, runs a second, steps: what is wanted first."""
        self._count(event)
        parts = [f"{event.engine}: {event.runs}/{event.of}"]
        if not event.of:
            parts = [f"{event.engine}: {event.runs} trials"]
        elif event.shrinking:
            parts.append("shrinking")
        elif self._seconds >= SETTLED and self._runs > 0:
            rate = self._runs / self._seconds
            left = _duration((event.of - event.runs) / rate)
            parts += [f"{left} left", f"{rate:.{1 if rate < 10 else 0}f} runs/s"]
        return ", ".join([*parts, f"{event.steps} steps"])

    def _count(self, event: Progress) -> None:
        last, now = self._last, self._clock()
        if last is None or last.engine != event.engine:
            self._seconds, self._runs = 0.0, 0
        elif not last.shrinking:
            self._seconds += now - self._heard
            self._runs += event.runs - last.runs
        self._last, self._heard = event, now


def _duration(seconds: float) -> str:
    """A time as `40 s`, `3 min 05 s` or `2 h 10 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
