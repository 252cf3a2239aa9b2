"""Targets that misbehave, behind a pipe, and what tests of commands ask of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from schedproof.spec.catalogue import Rule, load, select

from ..command_line import Result, Run

PATIENCE = 60.0  # seconds; for what must happen, however busy the machine
TOYS = """
import os, sys, time
from schedproof.gate.targets.jsonl import serve
from schedproof.model.target import ModelTarget

REAL = os.dup(1)
if __name__ != "__main__":
    print("the module prints when it is imported")


class Toy(ModelTarget):
    def start(self, system, revision, config):
        open("toy.pid", "w").write(str(os.getpid()))
        self.config = config
        return super().start(system, revision, config)

    def step(self):
        reply = super().step()
        self.bend(reply, reply["step"])
        return reply

    def bend(self, reply, step):
        if len(step["running"]) > 1:
            self.when_two_run(reply, step)

    def when_two_run(self, reply, step): pass


class Garbage(Toy):
    def bend(self, reply, step): os.write(REAL, b"Loading model ...\\n")
class Missing(Toy):
    def bend(self, reply, step): del step["waiting"]
class NoOk(Toy):
    def bend(self, reply, step): del reply["ok"]
class AllDecode(Toy):
    def bend(self, reply, step):
        if step["kind"] == "prefill": step["kind"] = "decode"
class IdleAndBusy(Toy):
    def bend(self, reply, step): step["kind"] = "idle"
class WrongType(Toy):
    def bend(self, reply, step): step["tkv"] = "many"
class LateGarbage(Toy):
    def when_two_run(self, reply, step): del step["waiting"]
class Observes(Toy):
    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"observes": "tkv"}
class Little(Toy):
    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"observes": []}
class Refuses(Toy):
    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "block_size must be\\n16"}
class LargeBlocks(Toy):
    def start(self, system, revision, config):
        if config["block_size"] < 64:
            return {"ok": False, "error": "config", "message": "block_size must be 64"}
        return super().start(system, revision, config)
class Release(Toy):
    def start(self, system, revision, config):
        return super().start(system, "2.5.2", config)
class CannotStart(Toy):
    def start(self, system, revision, config): raise ValueError("no device")
class Rejects(Toy):
    def add(self, request): return {"ok": False, "error": "rejected", "message": "no\\nguests"}
class Crash(Toy):
    def when_two_run(self, reply, step): raise ValueError("two is \\x1b[31ma crowd")
class Hang(Toy):
    def when_two_run(self, reply, step): time.sleep(1000)
class Exit(Toy):
    def when_two_run(self, reply, step):
        os.write(2, b"assert failed\\n")
        os._exit(7)
class Ghost(Toy):
    def when_two_run(self, reply, step): step["waiting"] = ["ghost"]
class Slow(Toy):
    def bend(self, reply, step):
        open("slow", "w").close()
        time.sleep(0.02)
class CrashThenSlow(Toy):
    def when_two_run(self, reply, step):
        if self.config["block_size"] < 64: raise ValueError("two is a crowd")
        open("slow", "w").close()
        time.sleep(0.02)

def no_target(): return object()
def raises(): return {}["nothing"]
not_callable = 3

if __name__ == "__main__":
    serve(globals()[sys.argv[1]]())
"""


def gate_json(run: Run, *words: str) -> tuple[Result, Any]:
    result = run("gate", *words, "--profile", "quick", "--json", "v.json")
    return result, json.loads(Path("v.json").read_bytes())


def load_rules(*names: str) -> tuple[Rule, ...]:
    return select(load("spyre"), names)


def statuses(data: Any) -> dict[str, str]:
    return {entry["id"]: entry["status"] for entry in data["rules"]}


def spyre_scenario(**changes: Any) -> dict[str, Any]:
    return {
        "format": "schedproof/scenario@1",
        "system": "spyre",
        "revision": "sound",
        "config": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "requests": [
            {"id": "r0", "arrival": 0, "prompt": [["r0", 5]], "max_tokens": 6},
            {"id": "r1", "arrival": 1, "prompt": [["r1", 9]], "max_tokens": 3},
        ],
    } | changes


def written(path: str, **changes: Any) -> str:
    Path(path).write_text(json.dumps(spyre_scenario(**changes)), encoding="utf-8")
    return path


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def broken_scenario(**changes: Any) -> str:
    """The file of a counterexample to the document."""
    config = {"block_size": 64, "chunk_size": 128, "max_model_len": 512, "max_batch_tkv": 767}
    requests = [
        {"id": "r0", "arrival": 0, "prompt": [["r0", 1]], "max_tokens": 354},
        {"id": "r1", "arrival": 0, "prompt": [["r1", 1]], "max_tokens": 320},
    ]
    about = {"revision": "documented", "config": config, "requests": requests}
    return written("s.json", **about, **changes)


def in_process(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "schedproof", *words],
        env=os.environ | environment,
        capture_output=True,
        timeout=PATIENCE,
    )


def small_gate(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with a quick profile that takes a moment."""
    quick = "from schedproof.gate.cli import app; from schedproof.gate.judging import profiles; "
    quick += "from schedproof.gate.targets import probe; probe.SCALES = ('small',); "
    quick += "profiles.PROFILES['quick'] = profiles.Profile(4, 4, 4, 2_000); app.main()"
    return subprocess.run(
        [sys.executable, "-c", quick, *words],
        env=os.environ | environment,
        capture_output=True,
        timeout=PATIENCE,
    )
