"""Run one search with Hypothesis."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import run_state_machine_as_test

from .machine import RuleBroken, machine_of
from .state import Search, StopSearch

READER = "_get_local_constants"  # in Hypothesis versions that have it
CACHE = "CONSTANTS_CACHE"


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Keep Hypothesis from drawing constants of the loaded modules inside the block."""
    inside: Any = providers
    if not hasattr(inside, READER):
        yield
        return
    nothing, reader = inside.Constants(), getattr(inside, READER)
    setattr(inside, READER, lambda: nothing)
    getattr(inside, CACHE).cache.clear()  # Hypothesis caches constants by the bounds of a draw
    try:
        yield
    finally:
        setattr(inside, READER, reader)
        getattr(inside, CACHE).cache.clear()


def run_search(search: Search, examples: int, seed_value: int, shrink_runs: int) -> bool:
    """Do up to `examples` runs; return whether a rule was broken. If so, `search.failure` is set.

    Raises:
        TargetFault: a reply of the target breaks the protocol.
    """
    phases = [Phase.generate, *([Phase.shrink] if shrink_runs else [])]
    budget = settings(
        max_examples=examples,
        stateful_step_count=24,
        phases=phases,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        # The other settings come from the user's own profile, if pytest has loaded one.
        backend="hypothesis",
        derandomize=False,
        print_blob=False,
    )
    machine = seed(seed_value)(machine_of(search, shrink_runs))
    stops = contextlib.suppress(RuleBroken, StopSearch, Flaky, Unsatisfiable)
    with without_local_constants(), stops:
        run_state_machine_as_test(machine, settings=budget)
    if search.fault is not None:
        raise search.fault
    if search.failure is not None:
        search.shrink_seconds = time.monotonic() - search.began - search.found_after
    return search.failure is not None
