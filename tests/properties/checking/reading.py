"""What a predicate reads, recorded by proxies of the step, the history, and its requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schedproof.model.observation import FIELDS
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.predicate import FIRST, PHASES

PROGRESS = "progress"  # what nearly every step changes; no declaration names it
# What an arrival, an abort, a control event or an end changes: then every rule is asked.
FIXED = frozenset(
    {
        *("id", "prompt", "max_tokens", "output_len", "content", "arrival", "priority"),
        *("never_runnable", "ended", "ended_at", "may_change_after_end", "accepted", "inputs"),
        *("load_steps", "load_fails_at", "deferrals", "send_steps", "external"),
        *("config", "revision", "system", "defaults", "features", "answers", "kin", "forgotten"),
        *("aborts_inside", "aborts_to_report", "live", "requests", "arrived", "events", "pause"),
    }
)
MOVES = frozenset(
    {
        *("started", "prefilled", "preemptions", "regenerated", "recompute_from"),
        *("began", "began_at"),
        *("prefix_hit", "paused", "unstarted", "ongoing", "decoding", "running"),
        "between_turns",
    }
)
# These are told by PHASES while a request does not decode.
COUNTS = frozenset(
    {
        *("computed", "emitted", "num_tokens", "max_computed", "held_tokens", "tokens_left"),
        "prefill_steps",
    }
)
MEMBERS = frozenset({"prefill_members", "decode_members", "last_was_prefill"})
# What these read is recorded where they read it; `holders` counts what it is given.
METHODS = frozenset({"hit_now", "max_hit", "reached", "last", "holders"})


class Reads(set[str]):
    """The names that were read. While `hidden`, nothing is recorded."""

    hidden = 0

    def of_step(self, field: str) -> None:
        """Note a field of a step."""
        if not self.hidden and field in FIELDS:
            self.add(field)

    def of_run(self, name: str) -> None:
        """Note what is read of the history or of one of its requests."""
        if self.hidden or name.startswith("__") or name in FIXED or name in METHODS:
            return
        if name in MEMBERS:
            self.update({"scheduled", PHASES})
        elif name == "step":
            self.add(FIRST)
        else:
            self.add(PHASES if name in MOVES else PROGRESS)


def recorded_request(kind: type, reads: Reads) -> type:
    """Return the class of requests that record what is read of them."""

    def read(self: Any, name: str) -> Any:
        if reads.hidden:
            return object.__getattribute__(self, name)
        if name in kind.__dataclass_fields__ or isinstance(getattr(kind, name, None), property):
            reads.hidden += 1
            known = name in COUNTS and not self.prefilled
            reads.hidden -= 1
            reads.of_run("started" if known else name)
        reads.hidden += 1
        try:
            return object.__getattribute__(self, name)
        finally:
            reads.hidden -= 1

    return type("Recorded", (kind,), {"__slots__": (), "__getattribute__": read})


class Recorded:
    """A step or a history that records what is read of it."""

    def __init__(self, real: Any, reads: Reads) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_reads", reads)

    def __getattr__(self, name: str) -> Any:
        real, reads = self._real, self._reads
        is_run = isinstance(real, RunHistory)
        (reads.of_run if is_run else reads.of_step)(name)
        hides = is_run and (name in MOVES or name in MEMBERS)
        reads.hidden += hides
        try:
            value = getattr(real, name)
        finally:
            reads.hidden -= hides
        if name == "last" and value is not None:
            return Recorded(value, reads)
        return _hidden(value, reads) if hides and callable(value) else value


def _hidden(method: Any, reads: Reads) -> Any:
    def call(*args: Any) -> Any:
        reads.hidden += 1
        try:
            return method(*[arg._real if isinstance(arg, Recorded) else arg for arg in args])
        finally:
            reads.hidden -= 1

    return call


@contextmanager
def recording(features: Any) -> Iterator[Reads]:
    """Let a system's requests record what is read of them; yields what was read so far."""
    reads = Reads()
    kind = features.request_history
    features.request_history = recorded_request(kind, reads)
    try:
        yield reads
    finally:
        features.request_history = kind
