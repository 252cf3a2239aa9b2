"""Traces made in this process: what a recorder would have written."""

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from schedproof.gate.traces.recorder import Recorder
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget, Target
from schedproof.properties.checking.replay import replay

Line = dict[str, Any]
SMALL = {
    **{"block_size": 4, "chunk_size": 8, "max_num_seqs": 4},
    **{"max_model_len": 64, "max_batch_tkv": 256},
}


def request(name: str, arrival: int, prompt: int, tokens: int = 4, **changes: Any) -> Request:
    """A request whose words are its own."""
    content = ((name, prompt),)
    return Request(id=name, arrival=arrival, prompt=content, max_tokens=tokens, **changes)


THREE = (request("a", 0, 12, 6), request("b", 1, 5, 9, output_len=3), request("c", 3, 20))


def scenario(
    *requests: Request, system: str = "spyre", revision: str = "sound", **config: Any
) -> Scenario:
    """A scenario of block 4, chunk 8, where nothing binds."""
    values = full_config(system, revision, (SMALL if system == "spyre" else {}) | config)
    return Scenario(system=system, revision=revision, config=values, requests=requests or THREE)


def recorded(run: Scenario, target: Target | None = None) -> list[Line]:
    """The conversation of a replay without rules."""
    file = io.BytesIO()
    replay(Recorder(target or ModelTarget(), file), run, ())
    return [json.loads(line) for line in file.getvalue().splitlines()]


def text(lines: Iterable[Line]) -> bytes:
    """The lines of a trace."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def written(path: Path, *parts: list[Line]) -> Path:
    """A file with these traces, one after the other."""
    path.write_bytes(b"".join(map(text, parts)))
    return path


def bent(lines: list[Line], where: int, bend: Callable[[Line], Any]) -> list[Line]:
    """The trace with one step changed, that of so many steps before it."""
    again: list[Line] = json.loads(json.dumps(lines))
    steps = [line["step"] for line in again if "step" in line]
    bend(steps[where])
    return again


def line_of_step(lines: list[Line], number: int) -> int:
    """The line, from 1, of the request for a step."""
    places = [place for place, line in enumerate(lines, 1) if line.get("op") == "step"]
    return places[number]


def without_output_lens(lines: list[Line]) -> list[Line]:
    """The trace as a recorder writes it that does not know where a request will end."""
    again: list[Line] = json.loads(json.dumps(lines))
    for line in again:
        if line.get("op") == "add":
            del line["request"]["output_len"]
    return again
