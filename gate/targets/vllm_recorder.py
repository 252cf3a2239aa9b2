"""A scheduler class that writes what it decides to a trace, inside a server of vLLM.

    SCHEDPROOF_TRACE=run.jsonl PYTHONPATH=FOLDER vllm serve … --scheduler-cls vllm_recorder.Recorder

FOLDER is the one of this file, which needs nothing but vLLM. `recording(MyScheduler)` does it for
another class. An error here never reaches the server: the record ends, with a line on stderr.
`schedproof check-trace run.jsonl` judges it.
"""

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .vllm_contents import Contents, SameTokens
    from .vllm_observation import Decided, look_at, look_before, observe, observed_fields
    from .vllm_terms import RecordEnds, config_of, request_of
    from .vllm_view import SchedulerView
else:
    from vllm_contents import Contents, SameTokens
    from vllm_observation import Decided, look_at, look_before, observe, observed_fields
    from vllm_terms import RecordEnds, config_of, request_of
    from vllm_view import SchedulerView

TRACE = "SCHEDPROOF_TRACE"
LIMIT = "SCHEDPROOF_TRACE_MIB"  # where the record ends
USUAL_LIMIT = 1024


class Record:
    """The conversation that a client of the protocol would have had with this scheduler."""

    def __init__(self, scheduler: Any, file: IO[str], limit: int) -> None:
        self._file, self._left = file, limit
        config = config_of(scheduler)
        self._view = SchedulerView(scheduler, config)
        self._contents = Contents(config["block_size"], config["num_blocks"])
        self._before: dict[str, int] = {}
        self._decided: Decided | None = None  # of the step that is not written yet
        self._seen: dict[str, Any] | None = None  # what it shows if no decision completes in it
        self._late: list[str] = []  # aborted inside that step, or behind it
        self._aborted: list[str] = []  # what the next step reports
        started = {"op": "start", "system": "vllm", "revision": "documented", "config": config}
        version = importlib.import_module("vllm").__version__
        fields = observed_fields(self._view)
        if self._view.flights.most > 1:
            fields.append("completes")
        name = type(scheduler).__name__
        reply = {"ok": True, "name": name, "version": f"vllm {version}", "observes": fields}
        self._write(started, reply)

    def added(self, request: Any) -> None:
        """A request has arrived, which is between two steps."""
        self._no_completion()
        asked = {**request_of(request), "prompt": self._contents.prompt_of(request)}
        self._write({"op": "add", "request": asked}, {"ok": True})

    def aborted(self, names: list[str]) -> None:
        """Requests were given up: inside the step that is not written yet, if one completes."""
        if self._decided is not None:
            self._late += names
        else:
            self._write_aborts(names, {})

    def decides(self) -> None:
        """A decision is about to be taken."""
        self._no_completion()
        self._before = look_before(self._view)

    def decided(self, decision: Any) -> None:
        """A decision was taken. Whether one completes in this step is said by what comes next."""
        self._decided = look_at(self._view, self._before, decision)
        for name in self._decided.scheduled.keys() - self._before.keys():
            self._contents.found(self._view.requests[name], self._view.hits[name])
        self._view.blocks()  # of requests that this step ends, too
        flight = self._view.flight(decision)
        for name in flight.first:
            self._view.flights.sampled(name, 1)
        must_complete = self._view.flights.take(flight)
        if not must_complete or not decision.num_scheduled_tokens:
            self._seen = observe(self._view, self._decided, {}, self._aborted, {})

    def completed(self, decision: Any, completion: Any) -> None:
        """A decision has completed, the oldest one on its way; a second one in a row in a step in
        which none is taken."""
        flight = self._view.flights.completed(decision)
        if flight is None:
            if decision.num_scheduled_tokens:
                raise RecordEnds("a step completed out of turn")
            return
        if self._decided is None:
            self._decided = Decided("idle", {}, [], {})
        late, self._late = self._late, []
        self._write_aborts(late, {"inside": True})
        self._contents.grown([self._view.requests.get(name) for name in flight.first])
        seen = observe(self._view, self._decided, completion, self._aborted, flight.first)
        self._end_step(seen, completes=True)

    def ends(self, why: str) -> None:
        """End the record before an event that no trace can express."""
        raise RecordEnds(why)

    def _no_completion(self) -> None:
        """The step that is not written yet, if there is one, is over, and none completed in it."""
        if self._decided is None:
            return
        if self._seen is None:
            raise RecordEnds("a step was decided before one completed that had to")
        self._end_step(self._seen, completes=False)
        late, self._late = self._late, []
        self._write_aborts(late, {})

    def _end_step(self, seen: dict[str, Any], *, completes: bool) -> None:
        self._decided, self._seen, self._aborted = None, None, []
        self._contents.ended([*seen["finished"]])
        if self._view.flights.most > 1:
            seen["completes"] = completes
        self._write({"op": "step"}, {"ok": True, "step": seen})

    def _write_aborts(self, names: list[str], inside: dict[str, bool]) -> None:
        for name in names:
            self._write({"op": "abort", "id": name, **inside}, {"ok": True})
        self._aborted += names

    def _write(self, request: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        lines = json.dumps(request) + "\n" + json.dumps(reply) + "\n"
        self._left -= len(lines)
        if self._left < 0:
            raise RecordEnds(f"the file is full ({LIMIT})")
        self._file.write(lines)


@functools.cache
def recording(scheduler: Any) -> Any:
    """The scheduler class, with what it decides written to the file of SCHEDPROOF_TRACE."""

    class Recording(scheduler):  # type: ignore[misc]
        """The scheduler class, with a record of what it decides."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._record: Record | None = None
            self._record = self._noted(lambda: _open(self))

        def add_request(self, request: Any) -> Any:
            result = super().add_request(request)
            self._note(lambda record: record.added(request))
            return result

        def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
            ids = [request_ids] if isinstance(request_ids, str) else request_ids
            live = [
                name
                for name in (self.requests if ids is None else ids)
                if name in self.requests and not self.requests[name].is_finished()
            ]
            result = super().finish_requests(request_ids, finished_status)
            self._note(lambda record: record.aborted(live))
            return result

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            self._note(lambda record: record.decides())
            decision = super().schedule(*args, **kwargs)
            self._note(lambda record: record.decided(decision))
            return decision

        def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            completion = super().update_from_output(scheduler_output, *args, **kwargs)
            self._note(lambda record: record.completed(scheduler_output, completion))
            return completion

        def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
            self._note(lambda record: record.ends("the prefix cache is emptied"))
            return super().reset_prefix_cache(*args, **kwargs)

        def set_pause_state(self, *args: Any, **kwargs: Any) -> Any:
            self._note(lambda record: record.ends("the scheduler is paused"))
            return super().set_pause_state(*args, **kwargs)

        def _note(self, what: Callable[[Record], None]) -> None:
            if self._record is not None:
                record = self._record
                self._noted(lambda: what(record))

        def _noted(self, what: Callable[[], Any]) -> Any:
            """Call `what`; if it raises, the record ends and the server continues."""
            try:
                return what()
            except Exception as error:
                self._record = None
                said = isinstance(error, RecordEnds | SameTokens)
                why = str(error) if said else repr(error)
                print(f"schedproof: the record ends: {why}", file=sys.stderr)

    Recording.__name__ = Recording.__qualname__ = scheduler.__name__
    return Recording


def _open(scheduler: Any) -> Record:
    if TRACE not in os.environ:
        raise RecordEnds(f"{TRACE} names no file")
    limit = int(float(os.environ.get(LIMIT, USUAL_LIMIT)) * 2**20)
    return Record(scheduler, _file(os.environ[TRACE]), limit)


@functools.cache
def _file(path: str) -> IO[str]:
    """One file for all schedulers of the process, written line by line; where there is one already,
    of another process too, one beside it."""
    try:
        return open(path, "x", encoding="utf-8", buffering=1)
    except FileExistsError:
        return open(f"{path}.{os.getpid()}", "w", encoding="utf-8", buffering=1)


def __getattr__(name: str) -> Any:
    """`Recorder` and `AsyncRecorder`: vLLM's own two schedulers, imported when asked for."""
    if name == "Recorder":
        return recording(importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler)
    if name == "AsyncRecorder":
        module = importlib.import_module("vllm.v1.core.sched.async_scheduler")
        return recording(module.AsyncScheduler)
    raise AttributeError(name)
