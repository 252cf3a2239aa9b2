"""Where a Python target hangs: the function that does not return, and not what its loop calls."""

import sys

import pytest

from schedproof.gate.targets import pipe
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.model.faults import TargetHung
from schedproof.properties.checking.failure_signature import own_frames

PATIENT = 20.0  # seconds; for what must be answered, however busy the machine
SHORT = 0.2  # seconds; for what must not be answered
SERVED = """
import time
from schedproof.gate.targets.jsonl import serve
class Target:
    def start(self, system, revision, config): return {"ok": True}
    def step(self):
        LOOP()
def helper(): return sum(range(300))
def outer():
    while not helper(): pass
    while True: inner()
def inner(): helper(); helper()
def waits(): time.sleep(60)
def in_c(): sum(iter(int, 1))
serve(Target())
"""


@pytest.mark.parametrize("loop", ["outer", "waits", "in_c"])
def test_the_stack_of_a_hang_begins_with_the_function_that_does_not_return(
    loop, monkeypatch, tmp_path
):
    monkeypatch.setattr(pipe, "EXIT_PATIENCE", 3.0)
    monkeypatch.setattr(pipe, "LOOP_PATIENCE", 0.5 if loop == "in_c" else PATIENT)
    program = tmp_path / "served.py"
    program.write_text(SERVED.replace("LOOP", loop))
    with PipeTarget([sys.executable, str(program)], step_limit=SHORT) as target:
        target.start("spyre", "documented", {})
        with pytest.raises(TargetHung) as caught:
            target.step()
    assert [frame.function for frame in own_frames(caught.value.details)] == [loop, "step"]
