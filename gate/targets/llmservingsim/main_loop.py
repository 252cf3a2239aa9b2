"""Run the simulator's own main loop and router around the checkout's schedulers.

Only the simulated hardware is replaced, together with its files: traces, graphs and hardware
descriptions. The replacement completes the batches that the adapter chooses. The loop runs in its
own thread, which waits for the adapter before and after each decision of the first scheduler.

With two instances, the first one prefills on accelerator 0 and sends the computed tokens to
accelerator 1. The second instance decodes on accelerator 2, and runs in each step until it is idle.

Source: serving/__main__.py, serving/core/router.py and serving/core/controller.py of the checkout.
"""

import json
import os
import sys
import tempfile
import threading
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..protocol_checks import Output

PREFILL, RECEIVER, DECODE = 0, 1, 2  # accelerators
NOTHING: tuple[Any, ...] = (0, 0, [])  # the result of `add_done` if no batch completes
WORKLOAD = "workload"  # the loop's message to an accelerator that has a batch to run


class _End(BaseException):
    """Raised in the thread of the main loop to end it."""


class MainLoop:
    """A simulation, from its start to its end.

    Attributes:
        router: the checkout's router.
        over: whether the main loop has ended the simulation.
        now: the time at which the next decision is made.
    """

    def __init__(self, main: Any, schedulers: Sequence[Any]) -> None:
        """Start the checkout's module `main` with one scheduler, or with one scheduler for prefill
        and one for decode."""
        self.schedulers = list(schedulers)
        self.router: Any = None
        self.over, self.now = False, 0
        self._folder = tempfile.TemporaryDirectory()
        self._rows = Path(self._folder.name, "requests.jsonl")
        self._rows.write_text("")
        self._answer, self._busy = "", False
        self._due: Any = None
        self._batch: Any = None
        self._result = NOTHING
        self._error: BaseException | None = None
        self._closed = False
        self._ours, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._lines = self._reports()
        self._watch(self.schedulers[0])
        self._main = types.FunctionType(main.main.__code__, self._globals(main))
        threading.Thread(target=self._run, daemon=True).start()
        words, sys.argv = sys.argv, ["serving", "--dataset", self._dataset(), "--dtype", "bfloat16"]
        try:
            self._go_on()
        finally:
            sys.argv = words

    # --- what the adapter calls -------------------------------------------------------------

    def add(self, prompt: list[int], output: Output, wait: int) -> None:
        """Hand a request to the router. If `wait` is not 0, the request belongs to a session
        that waits this long for its tool."""
        answer = [output.token(index) for index in range(output.length)]
        row: dict[str, Any] = {"input_toks": len(prompt), "output_toks": output.length}
        row |= {"input_tok_ids": prompt, "output_tok_ids": answer}
        due = {"arrival_time_ns": self.now + wait}
        row = {"session_id": output.id, "sub_requests": [row], **due} if wait else {**row, **due}
        self._rows.write_text(json.dumps(row))
        self.router.load_requests(self._dataset(), self.schedulers[0].enable_prefix_caching)

    def schedule(self) -> Any:
        """Let the first scheduler make its next decision. Return its batch, or None."""
        self._go_on()
        return self._batch

    def complete(self, due: Any, busy: bool) -> Any:
        """Complete the batch `due`, if there is one. Return the three values that the scheduler's
        `add_done` returns to the loop.

        `busy` says whether any batch was in flight; only then does time pass.
        """
        self._due, self._busy, self._result = due, busy, NOTHING
        self._go_on()
        return self._result

    def deferred(self) -> list[int]:
        """Return the numbers of the requests that the router holds back, in order of arrival."""
        router = self.router
        return [row["index"] for row in router._pending_requests[router._pending_idx :]]

    def close(self) -> None:
        if not self.over:
            self._closed = True
            self._theirs.release()
            self._ours.acquire()

    # --- the thread -------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._theirs.release()
        self._ours.acquire()
        if self._error is not None:
            raise self._error

    def _stand_still(self) -> None:
        self._ours.release()
        self._theirs.acquire()
        if self._closed:
            raise _End

    def _run(self) -> None:
        self._theirs.acquire()
        try:
            self._main()
        except _End:
            pass
        except BaseException as error:
            self._error, self.over = error, True
        self._folder.cleanup()
        self._ours.release()

    def _watch(self, scheduler: Any) -> None:
        """Make the loop wait for the adapter before and after each decision of a scheduler, and
        record the results of the decision."""
        schedule, add_done = scheduler.schedule, scheduler.add_done

        def decide(current: int, npu: int, number: int = -1) -> Any:
            if npu != PREFILL:
                return schedule(current, npu, number)
            self.now = current
            self._stand_still()
            # The loop has already routed the requests that had arrived. The client adds its
            # requests only now, so route again.
            self.router.route_arrived_requests(current)
            self._batch = schedule(current, npu, number)
            self._stand_still()
            return self._batch

        def completed(number: int, npu: int, current: int) -> Any:
            result = add_done(number, npu, current)
            if result != NOTHING:
                self._result = result
            return result

        scheduler.schedule, scheduler.add_done = decide, completed

    def _globals(self, main: Any) -> dict[str, Any]:
        """Return the globals for the loop: those of the checkout, with the hardware replaced."""
        names = dict(vars(main))

        def nothing(*_: Any, **__: Any) -> None:
            pass

        def router(*args: Any, **options: Any) -> Any:
            self.router = main.Router(*args, **options)
            return self.router

        given = iter(self.schedulers)
        names.update(dict.fromkeys([name for name in names if name.startswith("print")], nothing))
        names.update(dict.fromkeys(("generate_trace", "generate_graph", "generate_event"), nothing))
        names |= {
            "print": nothing,
            "os": types.SimpleNamespace(
                **{**vars(os), "getcwd": lambda: self._folder.name, "chdir": nothing}
            ),
            "subprocess": types.SimpleNamespace(Popen=lambda *_, **__: _Process(self), PIPE=None),
            "build_cluster_config": lambda *_, **__: cluster(self.schedulers),
            "_load_cluster_config_for_overrides": lambda _: {},
            "get_workload": lambda *_, **__: WORKLOAD,
            "Scheduler": lambda *_, **__: next(given),
            "Router": router,
        }
        return names

    def _dataset(self) -> str:
        """Return the path of the file of requests. It is relative to the parent of the working
        directory."""
        return os.path.relpath(self._rows, os.path.dirname(os.getcwd()))

    # --- the simulator ----------------------------------------------------------------------

    def answered(self, words: str) -> None:
        self._answer, self.over = words, self.over or words == "exit"

    def line(self) -> str:
        if self.over:
            raise _End
        return next(self._lines)

    def _reports(self) -> Iterator[str]:
        """Yield the simulator's output line by line, as the loop reads it."""
        waiting, drained = "Waiting\n", 0
        yield from (report(PREFILL, 0, 0), waiting)
        while True:
            if len(self.schedulers) > 1:
                self._answer = WORKLOAD
                while self._answer == WORKLOAD:
                    yield from (report(DECODE, drained, self.now), waiting)
                    drained += self._answer == WORKLOAD
            if self._due is not None:
                # The simulator numbers batches from 1.
                number = self._due.batch_id + 1
                if len(self.schedulers) > 1:
                    for each in (number - 1, number):
                        yield from (report(RECEIVER, each, self.now + 1), waiting)
                yield from (report(PREFILL, number, self.now + 1), waiting)
            elif self._busy or len(self.schedulers) > 1:
                yield from (report(PREFILL, 0, self.now + 1), waiting)
            else:  # an idle simulator reports no time
                yield from ("nothing\n", waiting)


class _Process:
    """A replacement for the simulator's process."""

    def __init__(self, loop: MainLoop) -> None:
        self.stdin = types.SimpleNamespace(
            write=lambda text: loop.answered(text.strip()), flush=lambda: None
        )
        self.stdout = types.SimpleNamespace(readline=loop.line, flush=lambda: None)


def report(npu: int, number: int, time: int) -> str:
    return (
        f"sys[{npu}] iteration {number} finished, {time} cycles, exposed communication 0 cycles.\n"
    )


def cluster(schedulers: Sequence[Any]) -> dict[str, Any]:
    """Return the description of the hardware in the form that the checkout's own function
    returns."""
    alone = len(schedulers) == 1
    starts = {0: PREFILL} if alone else {0: PREFILL, 1: DECODE}
    return {
        "num_nodes": 1,
        "num_instances": len(schedulers),
        "instances": [
            {
                **{"model_name": scheduler.model, "hardware": "", "node_id": 0, "num_npus": 1},
                **{"instance_id": number, "tp_size": 1, "local_ep": 1, "ep_total": 1},
                **{"pp_size": scheduler.pp_size, "pd_type": scheduler.pd_type},
                **{"npu_mem": {"mem_size": 1}, "dp_group": None, "tp_dim": None, "ep_dim": None},
            }
            for number, scheduler in enumerate(schedulers)
        ],
        "inst2node_mapping": dict.fromkeys(starts, 0),
        "inst2npu_mapping": starts,
        "npu2inst_mapping": {PREFILL: 0} if alone else {PREFILL: 0, RECEIVER: 0, DECODE: 1},
        "prefill_instance": [] if alone else [0],
        "decode_instance": [] if alone else [1],
        "total_npu": 1 if alone else 3,
        "cpu_mem_size": [1],
        "cxl_mem_size": 0,
        "pim_models": defaultdict(lambda: None),
        "placement": defaultdict(lambda: None),
        "block_mode_on": defaultdict(lambda: None),
        **{"start_npu_ids": "", "end_npu_ids": "", "power_modeling": False, "power_configs": []},
    }
