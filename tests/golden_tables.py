"""Published behaviour as data: where the golden tables are, and runs of the model in their form."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedproof.model.scenario import Request
from schedproof.model.spyre import documented
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.model import SpyreModel, make_model
from schedproof.model.spyre.state import Sequence as Held
from schedproof.model.target import ModelTarget

FOLDER = Path(__file__).with_name("golden")
# All of the scheduling page's figures, the prefix-caching ones apart.
FIGURE_BLOCK = 64
FIGURE_CHUNK = 128


class Arrival(NamedTuple):
    """A request: the step before which it is added, its name, lengths in tokens."""

    step: int
    id: str
    prompt: int
    max_tokens: int
    output_len: int | None = None
    content: tuple[tuple[str, int], ...] = ()


def load(file: str) -> list[dict[str, Any]]:
    """The tables in one file of the golden folder."""
    tables: list[dict[str, Any]] = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    return tables


def cases(file: str) -> list[Any]:
    """One pytest parameter per table of a file."""
    return [
        pytest.param(table, id=f"{number}-{table['name'].removeprefix('test_')}")
        for number, table in enumerate(load(file))
    ]


def config_of(table: dict[str, Any]) -> dict[str, Any]:
    """A table's configuration under the names of the scenario format."""
    config = table["config"]
    names = {
        "prefix_caching": "prefix_caching",
        "interleave": "interleave",
        "pausing_enabled": "pausing",
        "available_blocks": "num_blocks",
    }
    same = ("block_size", "chunk_size", "max_num_seqs", "max_model_len")
    limit = config.get("max_batch_tkv_limit") or config.get("effective_max_batch_tkv_limit")
    blocks = config.get("num_blocks_override_incl_block0")
    return (
        {key: config[key] for key in same}
        | {name: config[key] for key, name in names.items() if key in config}
        | ({"max_batch_tkv": limit} if limit else {})
        | ({"num_blocks": blocks - 1} if blocks else {})
    )


def arrival_of(request: dict[str, Any]) -> Arrival:
    """A table's request. Tokens are equal where source, key and index are; no segment of the
    tables starts within its stream."""
    assert all(part["start"] == 0 for part in request["prompt"])
    return Arrival(
        request["add_step"],
        request["id"],
        request["prompt_len"],
        request["max_tokens"],
        content=tuple(
            (f"{segment['source']}{segment['key']}", segment["len"])
            for segment in request["prompt"]
        ),
    )


def model_of(revision: str, config: dict[str, Any]) -> SpyreModel:
    """The model in a table's configuration."""
    return make_model(revision, config)


def request_of(arrival: Arrival) -> Request:
    """The scenario's request for an arrival."""
    return Request(
        id=arrival.id,
        arrival=arrival.step,
        prompt=arrival.content or ((arrival.id, arrival.prompt),),
        max_tokens=arrival.max_tokens,
        output_len=arrival.output_len,
    )


def usable_blocks(config: SpyreConfig, held: Held) -> int:
    """Blocks of a request's prefix hit that save a chunk."""
    return documented.usable_blocks(
        documented.left_padding_blocks(held.prompt, config.chunk_size, config.block_size),
        held.prefix_hit // config.block_size,
        documented.chunk_count(held.prompt, config.chunk_size),
        config.chunk_size // config.block_size,
    )


def started(revision: str, **config: Any) -> ModelTarget:
    """The reference model of a Spyre revision, ready for requests."""
    target = ModelTarget()
    reply = target.start("spyre", revision, config)
    assert reply["ok"], reply
    return target


def add(target: ModelTarget, arrival: Arrival) -> None:
    """Hand a request to the target, which must take it."""
    reply = target.add(
        {
            "id": arrival.id,
            "prompt": [
                list(segment) for segment in arrival.content or ((arrival.id, arrival.prompt),)
            ],
            "max_tokens": arrival.max_tokens,
            "output_len": arrival.output_len or arrival.max_tokens,
        }
    )
    assert reply["ok"], reply


def play(target: ModelTarget, arrivals: Sequence[Arrival]) -> Iterator[dict[str, Any]]:
    """The steps of a run until every request has finished; arrivals come before their step."""
    left = {arrival.id for arrival in arrivals}
    # No step is lost but one idle step per request at most, and those before an arrival.
    work = sum(2 * drawn.prompt + drawn.max_tokens + 2 for drawn in arrivals)
    bound = work + max(drawn.step for drawn in arrivals)
    for number in range(bound + 1):
        for arrival in arrivals:
            if arrival.step == number:
                add(target, arrival)
        seen = target.step()["step"]
        left -= seen["finished"].keys()
        yield seen
        if not left:
            return
    raise AssertionError(f"{sorted(left)} unfinished after {bound} steps")


def drawn_batch(requests: dict[str, Arrival], generated: dict[str, int]) -> list[dict[str, Any]]:
    """The list `decoding` of a row: the batch aligned with the tokens generated so far."""
    names = sorted(generated)
    lengths = [requests[name].prompt + generated[name] for name in names]
    return [
        {
            "id": name,
            "prompt_len": requests[name].prompt,
            "max_tokens": requests[name].max_tokens,
            "tkv": position,
            "padding": pad * FIGURE_BLOCK,
            "decoded": generated[name],
            "reserved": requests[name].max_tokens - generated[name],
        }
        for name, position, pad in zip(
            names,
            documented.request_tkvs(lengths, FIGURE_BLOCK),
            documented.left_pad_blocks(lengths, FIGURE_BLOCK),
            strict=True,
        )
    ]


def drawn_rows(
    steps: Iterator[dict[str, Any]], requests: Sequence[Arrival], first: int
) -> Iterator[dict[str, Any]]:
    """The rows that a figure would show for the engine's steps, numbered from `first`."""
    by_id = {request.id: request for request in requests}
    generated: dict[str, int] = {}
    computed: dict[str, int] = {}
    chunks: dict[str, int] = {}
    chunk: dict[str, Any] = {}
    for number, seen in enumerate(steps, first):
        prefilling = None
        if seen["kind"] == "prefill":
            [(name, tokens)] = seen["scheduled"].items()
            start = computed.get(name, 0)
            prefilling = chunk = {
                "id": name,
                "prompt_len": by_id[name].prompt,
                "max_tokens": by_id[name].max_tokens,
                "chunks_total": documented.chunk_count(by_id[name].prompt, FIGURE_CHUNK),
                "chunks_done": chunks.get(name, 0),
                "chunk_prompt_token_start": start,
                "chunk_prompt_token_end": start + tokens,
                "left_padding": seen["left_pad_blocks"][name] * FIGURE_BLOCK,
                "right_padding": -by_id[name].prompt % FIGURE_BLOCK,
            }
            chunks[name] = chunks.get(name, 0) + 1
            batch = dict(generated)
        else:
            if seen["prefilling"]:
                prefilling = chunk | {"chunks_done": chunks[seen["prefilling"][0]]}
            batch = {name: generated[name] + 1 for name in seen["emitted"]}
        row = {
            "step": number,
            "step_type": "done" if seen["kind"] == "idle" else seen["kind"],
            "waiting": [drawn_waiting(by_id[name]) for name in seen["waiting"]],
            "prefilling": prefilling,
            "decoding": drawn_batch(by_id, batch),
        }
        yield row | ({"completed": list(seen["finished"])} if seen["finished"] else {})
        for name in seen["emitted"]:
            generated[name] = generated.get(name, 0) + 1
        for name in seen["finished"]:
            del generated[name]
        computed = seen["computed"]
        assert all(computed[n] == by_id[n].prompt + g - 1 for n, g in generated.items())


def drawn_waiting(request: Arrival) -> dict[str, Any]:
    return {"id": request.id, "prompt_len": request.prompt, "max_tokens": request.max_tokens}
