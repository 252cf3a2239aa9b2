r"""A scheduler class that records its decisions in a trace, inside a vLLM server.

    SCHEDPROOF_TRACE=run.jsonl vllm serve … \
        --scheduler-cls schedproof.gate.targets.vllm.recorder.Recorder

It needs nothing but vLLM. If schedproof is not installed, put its folder `gate` on PYTHONPATH and
use `targets.vllm.recorder.Recorder` as the class. To record another class, use
`recording(MyScheduler)`. An error in this module never reaches the server: recording stops, and a
line on stderr gives the reason. `schedproof check-trace run.jsonl` judges the trace.
"""

import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ..jsonl import crash_reply
from .observation import Decided, SchedulerView, look_at, look_before, observe, observed_fields
from .trace_output import Lines, RecordEnds, TraceFile

TRACE = "SCHEDPROOF_TRACE"
LIMIT = "SCHEDPROOF_TRACE_MIB"  # the variable that gives the size in MiB at which recording stops
USUAL_LIMIT = 1024
NULL_BLOCK = 1  # one block of vLLM's pool is never given to a request
MANAGER = "FullAttentionManager"
# Features that make a request wait or share blocks and that no scenario can express. For each: an
# attribute of the request, and a description for the user.
NOT_IN_SCENARIOS = {
    "structured_output_request": "waits for a grammar",
    "lora_request": "needs an adapter",
    "mm_features": "has images or sound",
    "pooling_params": "asks for no tokens",
    "resumable": "continues when more input arrives",
}
Segments = list[list[Any]]  # [name, tokens], as in a scenario's prompt
STEP = '{"op": "step"}\n'
STOP = '{"op": "stop"}\n{"ok": true}\n'

FACTOR = 8  # how many hashes to remember per block of the pool
SPARE = 10_000


# Revisions of the model, which cannot be imported here.
REVISIONS = ("0.25", "0.30", "0.31", "0.33")


def revision_of(version: str) -> str:
    number = [int(part) for part in re.findall(r"\d+", version)[:2]]
    older = [name for name in REVISIONS if [int(part) for part in name.split(".")] <= number]
    return older[-1] if older else "documented"


class Record:
    """A scheduler's run, written as the requests and replies that a client of the protocol would
    see."""

    def __init__(self, scheduler: Any, file: Lines, limit: int) -> None:
        self._file, self._left = file, limit - len(STOP)
        config = config_of(scheduler)
        self._view = SchedulerView(scheduler, config)
        self._contents = Contents(config["block_size"], config["num_blocks"])
        self._before: dict[str, int] = {}
        # The step that has not been written yet: its decision, and its observation in case nothing
        # completes in the step.
        self._decided: Decided | None = None
        self._seen: dict[str, Any] | None = None
        self._late: list[str] = []  # requests aborted inside that step or after it
        self._aborted: list[str] = []  # requests whose aborts the next step reports
        self._blocks: dict[str, list[int]] = {}  # the blocks in the last written step
        version = importlib.import_module("vllm").__version__
        revision = revision_of(version)
        started = {"op": "start", "system": "vllm", "revision": revision, "config": config}
        fields = observed_fields(self._view)
        if self._view.flights.most > 1:
            fields.append("completes")
        name = type(scheduler).__name__
        reply = {"ok": True, "name": name, "version": f"vllm {version}", "observes": fields}
        self._write(started, reply)

    def added(self, request: Any) -> None:
        self._no_completion()
        entry = {**request_of(request), "prompt": self._contents.prompt_of(request)}
        self._write({"op": "add", "request": entry}, {"ok": True})

    def aborted(self, names: list[str]) -> None:
        """Record aborts. If a step has been decided but not written yet, hold the aborts back: they
        came inside that step if it still completes."""
        if self._decided is not None:
            self._late += names
        else:
            self._write_aborts(names, {})

    def decides(self) -> None:
        self._no_completion()
        self._before = look_before(self._view)

    def decided(self, decision: Any) -> None:
        """Record a decision. The next event will show whether the step completes a decision."""
        self._decided = look_at(self._view, self._before, decision)
        for name in self._decided.scheduled.keys() - self._before.keys():
            self._contents.check_hit(self._view.requests[name], self._view.hits[name])
        self._view.blocks()  # read the blocks now, before requests end in this step
        flight = self._view.flight(decision)
        for name in flight.first:
            self._view.flights.sampled(name, 1)
        must_complete = self._view.flights.take(flight)
        if not must_complete or not decision.num_scheduled_tokens:
            self._seen = observe(self._view, self._decided, {}, self._aborted, {})

    def completed(self, decision: Any, completion: Any) -> None:
        """Record that the oldest decision in flight has completed. If no decision was made since
        the last completion, it completes in an idle step."""
        flight = self._view.flights.completed(decision)
        if flight is None:
            if decision.num_scheduled_tokens:
                raise RecordEnds("a step completed out of order")
            if self._view.flights.is_empty:  # no decision in flight could complete in this step
                self._no_completion()
            return
        if self._decided is None:
            self._decided = Decided("idle", {}, [], {}, {"computed": {}})
        late, self._late = self._late, []
        self._write_aborts(late, {"inside": True})
        self._contents.grown([self._view.requests.get(name) for name in flight.first])
        seen = observe(self._view, self._decided, completion, self._aborted, flight.first)
        self._end_step(seen, completes=True)

    def crashed(self, error: Exception) -> None:
        """Record that the scheduler raised an exception while it decided or completed a step."""
        late, self._late = self._late, []
        self._write_aborts(late, {"inside": True})
        self._write_lines(STEP, crash_reply(error))

    def ends(self, why: str) -> None:
        raise RecordEnds(why)

    def stop(self) -> None:
        """End the run in the trace, so that its unfinished requests do not look like a crash."""
        with suppress(OSError, RecordEnds):
            self._file.write(STOP)

    def _no_completion(self) -> None:
        if self._decided is None:
            return
        if self._seen is None:
            raise RecordEnds("a step was decided before an earlier step completed")
        self._end_step(self._seen, completes=False)
        late, self._late = self._late, []
        self._write_aborts(late, {})

    def _end_step(self, seen: dict[str, Any], *, completes: bool) -> None:
        self._decided, self._seen, self._aborted = None, None, []
        self._contents.ended([*seen["finished"]])
        if self._view.flights.most > 1:
            seen["completes"] = completes
        blocks = seen.pop("blocks")
        changes = block_changes(self._blocks, blocks)
        self._blocks = blocks
        self._write_lines(STEP, {"ok": True, "step": seen, "block_changes": changes})

    def _write_aborts(self, names: list[str], inside: dict[str, bool]) -> None:
        for name in names:
            self._write({"op": "abort", "id": name, **inside}, {"ok": True})
        self._aborted += names

    def _write(self, request: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        self._write_lines(json.dumps(request) + "\n", reply)

    def _write_lines(self, request: str, reply: Mapping[str, Any]) -> None:
        lines = request + json.dumps(reply) + "\n"
        self._left -= len(lines)
        if self._left < 0:
            raise RecordEnds(f"the file is full ({LIMIT})")
        self._file.write(lines)


def block_changes(before: Mapping[str, list[int]], now: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return how the blocks of each request changed, without unchanged requests.

    A change is a pair: how many of the previous blocks remain, and the blocks after them. If the
    request no longer has any blocks, it is None.
    """
    changes: dict[str, Any] = {name: None for name in before if name not in now}
    for name, blocks in now.items():
        had = before.get(name, [])
        if had is blocks:
            continue
        kept = len(had)
        if blocks[:kept] != had:
            kept = next(n for n in range(kept) if blocks[n : n + 1] != had[n : n + 1])
        if kept < max(len(had), len(blocks)):
            changes[name] = [kept, blocks[kept:]]
    return changes


@functools.cache
def recording(scheduler: Any) -> Any:
    """Return a subclass that records its decisions in the file SCHEDPROOF_TRACE."""

    class Recording(scheduler):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._record: Record | None = None
            self._record = self._guard(lambda: _open(self))

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
            with self._crashes():
                decision = super().schedule(*args, **kwargs)
            self._note(lambda record: record.decided(decision))
            return decision

        def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            with self._crashes():
                completion = super().update_from_output(scheduler_output, *args, **kwargs)
            self._note(lambda record: record.completed(scheduler_output, completion))
            return completion

        def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
            self._note(lambda record: record.ends("the prefix cache is emptied"))
            return super().reset_prefix_cache(*args, **kwargs)

        def set_pause_state(self, *args: Any, **kwargs: Any) -> Any:
            self._note(lambda record: record.ends("the scheduler is paused"))
            return super().set_pause_state(*args, **kwargs)

        @contextmanager
        def _crashes(self) -> Iterator[None]:
            try:
                yield
            except Exception as error:
                raised = error
                self._note(lambda record: record.crashed(raised))
                self._record = None
                raise

        def _note(self, what: Callable[[Record], None]) -> None:
            if self._record is not None:
                record = self._record
                self._guard(lambda: what(record))

        def _guard(self, what: Callable[[], Any]) -> Any:
            try:
                return what()
            except Exception as error:
                record, self._record = self._record, None
                if record is not None:
                    record.stop()
                is_ours = isinstance(error, RecordEnds | SameTokens)
                why = str(error) if is_ours else repr(error)
                print(f"schedproof: the recording stops: {why}", file=sys.stderr)

    Recording.__name__ = Recording.__qualname__ = scheduler.__name__
    return Recording


def _open(scheduler: Any) -> Record:
    if TRACE not in os.environ:
        raise RecordEnds(f"{TRACE} names no file")
    limit = int(float(os.environ.get(LIMIT, USUAL_LIMIT)) * 2**20)
    return Record(scheduler, _file(os.environ[TRACE], os.getpid()).begin(), limit)


@functools.cache
def _file(path: str, _process: int) -> TraceFile:
    return TraceFile(path)


def __getattr__(name: str) -> Any:
    """Make `Recorder` and `AsyncRecorder`, which record vLLM's own two schedulers, on first use."""
    if name == "Recorder":
        return recording(importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler)
    if name == "AsyncRecorder":
        module = importlib.import_module("vllm.v1.core.sched.async_scheduler")
        return recording(module.AsyncScheduler)
    raise AttributeError(name)


# --- a scheduler and its requests, in the terms of the scenario format -----------------------


def request_of(request: Any) -> dict[str, Any]:
    """Return a request as a trace records it, without its prompt. Raise RecordEnds if a scenario
    cannot express the request."""
    for attribute, words in NOT_IN_SCENARIOS.items():
        if getattr(request, attribute, None):
            raise RecordEnds(f"{request.request_id} {words}")
    return {
        "id": request.request_id,
        "max_tokens": request.max_tokens,
        "priority": request.priority,
    }


def config_of(scheduler: Any) -> dict[str, Any]:
    """Return the configuration of a scheduler; raise RecordEnds if a scenario cannot express it."""
    vllm_config, options = scheduler.vllm_config, scheduler.scheduler_config
    if vllm_config.kv_transfer_config is not None:
        raise RecordEnds("the recorder cannot see what a KV connector loads")
    block_size = vllm_config.cache_config.block_size
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    known = [type(m).__name__ == MANAGER and m.block_size == block_size for m in managers]
    if known != [True]:
        kinds = ", ".join(f"{type(m).__name__} ({m.block_size})" for m in managers)
        raise RecordEnds(f"blocks are kept by {kinds} and not by a single {MANAGER} ({block_size})")
    stages = vllm_config.parallel_config.pipeline_parallel_size
    drafts = getattr(scheduler, "num_spec_tokens", 0)
    if drafts and getattr(options, "async_scheduling", False):
        raise RecordEnds("steps are decided ahead, so it is not known yet which drafts are correct")
    usual = {
        "async_scheduling": (bool(getattr(options, "async_scheduling", False)), False),
        "pipeline_parallel_size": (stages, 1),
        "num_speculative_tokens": (drafts, 0),
        "num_lookahead_tokens": (getattr(scheduler, "num_lookahead_tokens", 0), 0),
        # Since 0.33.
        "max_num_active_seqs": (getattr(options, "max_num_active_seqs", None), None),
        "long_prefill_token_threshold_adaptive": (
            bool(getattr(options, "long_prefill_token_threshold_adaptive", False)),
            False,
        ),
        "use_v2_model_runner": (bool(getattr(scheduler, "use_v2_model_runner", False)), False),
        "prefill_schedule_interval": (getattr(scheduler, "local_prefill_interval", 1), 1),
    }
    return {
        "block_size": block_size,
        "num_blocks": scheduler.kv_cache_manager.block_pool.num_gpu_blocks - NULL_BLOCK,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": vllm_config.model_config.max_model_len,
        "long_prefill_token_threshold": options.long_prefill_token_threshold,
        "enable_chunked_prefill": bool(options.enable_chunked_prefill),
        "enable_prefix_caching": bool(vllm_config.cache_config.enable_prefix_caching),
        "policy": options.policy,
        "watermark": getattr(options, "watermark", 0.0),
        "reserve_full_isl": getattr(options, "scheduler_reserve_full_isl", False),
        **{key: value for key, (value, nothing) in usual.items() if value != nothing},
    }


# --- prompts ----------------------------------------------------------------------------------


class SameTokens(Exception):  # noqa: N818 (not an error of the server's)
    """Raised if two requests generated the same tokens independently. The hashes then do not
    show which of the two a prompt continues."""


class Contents:
    """Describe prompts as segments. A segment consists of a length and the name of the request
    in which these tokens first occurred."""

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = FACTOR * num_blocks + SPARE
        self._owner: dict[Any, str] = {}  # for each hash, the first request in which it occurred
        self._segments: dict[str, Segments] = {}
        self._owned: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # for each request, how many of its hashes have been read
        self._live: set[str] = set()
        # Hashes of tokens that two requests generated by chance.
        self._twice: set[Any] = set()

    def prompt_of(self, request: Any) -> Segments:
        """Return the segments of a new request's prompt. Parts that occurred in an earlier
        request get the earlier request's name. Raise SameTokens if two earlier requests
        generated the same tokens by chance."""
        name, tokens = request.request_id, request.num_prompt_tokens
        hashes = list(request.block_hashes)[: tokens // self._block_size]
        known = next((n for n in range(len(hashes), 0, -1) if hashes[n - 1] in self._owner), 0)
        segments: Segments = []
        if not self._twice.isdisjoint(hashes[:known]):
            raise SameTokens(
                f"the prompt of {name} begins with tokens that two other requests share by chance"
            )
        if known:
            owner = self._owner[hashes[known - 1]]
            theirs = [*self._segments[owner], [f"out:{owner}", tokens]]
            segments = cut(theirs, known * self._block_size)
        rest = tokens - known * self._block_size
        segments += [[name, rest]] if rest else []
        self._segments[name] = segments
        self._owned[name] = self._seen[name] = 0
        self._live.add(name)
        self._register(name, hashes)
        return segments

    def check_hit(self, request: Any, tokens: int) -> None:
        """Raise SameTokens if a starting request found cached tokens that several requests
        generated, because it is not known whose blocks these are."""
        hashes = list(request.block_hashes)[: tokens // self._block_size]
        if not self._twice.isdisjoint(hashes):
            raise SameTokens(f"{request.request_id} found tokens that two other requests share")

    def grown(self, requests: list[Any]) -> None:
        for request in requests:
            if request is not None and request.request_id in self._live:
                name, hashes = request.request_id, request.block_hashes
                if len(hashes) == self._seen[name]:
                    continue
                had = hashes[self._seen[name] :]
                self._twice.update(block for block in had if block in self._owner)
                self._register(name, hashes)

    def ended(self, names: list[str]) -> None:
        """Record that requests have ended; later prompts may still begin with their content."""
        for name in names:
            self._live.discard(name)
            self._forget(name)

    def _register(self, name: str, hashes: Any) -> None:
        for number in range(self._seen[name], len(hashes)):
            owner = self._owner.pop(hashes[number], None)
            self._owned[name] += owner is None
            self._owner[hashes[number]] = owner or name  # so the most recently used hash comes last
        self._seen[name] = len(hashes)
        while len(self._owner) > self._most:
            oldest = next(iter(self._owner))
            owner = self._owner.pop(oldest)
            if owner in self._live:  # a running request may still hold the block, however old it is
                self._owner[oldest] = owner
                continue
            self._twice.discard(oldest)
            self._owned[owner] -= 1
            self._forget(owner)

    def _forget(self, name: str) -> None:
        if name not in self._live and not self._owned.get(name, 1):
            for of in (self._segments, self._owned, self._seen):
                del of[name]


def cut(segments: Segments, tokens: int) -> Segments:
    leading: Segments = []
    for name, length in segments:
        if tokens <= 0:
            break
        leading.append([name, min(length, tokens)])
        tokens -= length
    return leading
