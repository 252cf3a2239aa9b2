"""Does the memory of `schedproof check-trace` stay constant, however long the trace is?

One process writes a trace of any length, and another one checks it. Prints how many steps are
checked per second, and the peak memory so far:

    make tool NAME=long_trace OPTIONS="--steps 1000000 --system spyre --explain"
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from schedproof.gate.traces.trace_file import STEP
from schedproof.model.scenario import Request, Segment
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget

REPORT_AT = (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)  # in steps
# Steps between arrivals: just enough that every request is served, with a few running at a time.
EVERY = 24
# With a prefix cache and a bounded pool of blocks. LLMServingSim has no prefix cache here: its
# history would then keep everything.
CONFIGS: dict[str, dict[str, Any]] = {
    "spyre": {"prefix_caching": True, "num_blocks": 1024},
    "vllm": {"num_blocks": 4096},
    "nano_vllm": {},
    "llmservingsim": {"enable_prefix_caching": False, "num_blocks": 4096},
}


def requests() -> Iterator[Request]:
    """Yield an endless stream of requests, with lengths in tokens. One request in three begins
    with a common prefix. One in five repeats an earlier request and continues it."""
    number = 0
    while True:
        name, prompt = f"r{number}", 100 + 37 * number % 900
        tokens = 40 + 13 * number % 40
        content: tuple[Segment, ...] = ((name, prompt),)
        if number % 3 == 0:
            content = (("system", 256), *content)
        if number % 5 == 0 and number:
            content = ((f"r{number - 4}", 100), *content)
        yield Request(
            id=name,
            arrival=0,
            prompt=content,
            max_tokens=tokens + number % 3,
            output_len=tokens,
        )
        number += 1


def conversation(system: str, revision: str, steps: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a trace of this many steps."""
    config = full_config(system, revision, CONFIGS[system])
    target, arriving = ModelTarget(), requests()
    yield {"op": "start", "system": system, "revision": revision, "config": config}
    yield target.start(system, revision, config)
    for step in range(steps):
        if step % EVERY == 0:
            request = next(arriving).for_target()
            yield {"op": "add", "request": request}
            yield target.add(request)
        yield {"op": "step"}
        yield target.step()


def encoded(line: dict[str, Any]) -> bytes:
    return STEP if line.get("op") == "step" else msgspec.json.encode(line) + b"\n"


def make(system: str, revision: str, steps: int, file: BinaryIO) -> None:
    for line in conversation(system, revision, steps):
        file.write(encoded(line))


def memory(process: int, peak: str = "VmHWM") -> float:
    """Return the peak memory of a process in MB, or another field of its status."""
    status = Path(f"/proc/{process}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(peak)]
    return int(line.split()[1]) / 1024


def run(system: str, revision: str, steps: int, explain: bool) -> int:
    """Write a trace, check it, and print the figures."""
    words = ["check-trace", "-", *(["--explain"] if explain else [])]
    check = subprocess.Popen([sys.executable, "-m", "schedproof", *words], stdin=subprocess.PIPE)
    assert check.stdin is not None
    began, step = time.monotonic(), 0
    for line in conversation(system, revision, steps):
        check.stdin.write(encoded(line))
        step += "step" in line
        if "step" in line and (step in REPORT_AT or step == steps):
            check.stdin.flush()
            seconds = time.monotonic() - began
            print(
                f"{step:>10,} steps: {step / seconds:,.0f} steps/s, "
                f"at most {memory(check.pid):.1f} MB",
                flush=True,
            )
    check.stdin.close()
    return check.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--system", default="spyre", choices=sorted(CONFIGS))
    parser.add_argument("--revision", default=None)
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--make", action="store_true", help="write the trace to stdout instead")
    options = parser.parse_args()
    revision = options.revision or {"spyre": "sound"}.get(options.system, "documented")
    if options.make:
        make(options.system, revision, options.steps, sys.stdout.buffer)
        return 0
    return run(options.system, revision, options.steps, options.explain)


if __name__ == "__main__":
    sys.exit(main())
