"""The releases' published single forwards, reproduced cell by cell by the models of the releases.

Two kinds of files: padding and tkv at the model runner, block tables and slots at the worker.
"""

import pytest

from schedproof.model.pool import blocks_for
from schedproof.model.spyre import documented, scheduler

from .. import golden_tables

REVISIONS = ("2.1.2", "2.5.2")
RUNNER = "chunked_prefill_tkv_steps.json"
WORKER = "prefix_caching_worker.json"

# Keys of a forward and of its `expect`, per file: all of them are in one of the two tables.
COMPARED = {
    RUNNER: {"cached", "num_scheduled_tokens", "tkv", "n_outputs", "n_tokens_of_output_0"},
    WORKER: {
        *("chunk_count", "padding_blocks", "usable_cache_blocks", "total_cache_blocks"),
        *("block_tables", "slot_blocks", "req_ids", "num_sampled_token_ids", "tkv"),
        *("n_free_blocks", "left_padding", "prefix_cache_hit_len"),
    },
}
NOT_COMPARED = {
    RUNNER: {"new": "the requests that enter: they drive the run"},
    WORKER: {
        "op": "what is done: it drives the run",
        "request": "the request that enters: it drives the run",
        "prompt_len": "argument of a plan",
        "num_computed_tokens": "argument of a plan",
        "slot_slice": "which positions of `slot_blocks` are written out: it drives the comparison",
    },
}

# More than any request of the runner's file generates, which names no length.
ENDLESS = 100


def tables(file):
    return [
        pytest.param(revision, *case.values, id=f"{revision}-{case.id}", marks=case.marks)
        for revision in REVISIONS
        for case in golden_tables.cases(f"{revision}_{file}")
    ]


@pytest.mark.parametrize(("revision", "table"), tables(RUNNER))
def test_every_cell_of_the_runners_forwards_is_reproduced(revision, table):
    for forward, got in zip(table["forwards"], runner_cells(revision, table), strict=True):
        expected = {key: forward[key] for key in ("cached", "num_scheduled_tokens")}
        expected |= forward["expect"]
        assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize(("revision", "table"), tables(WORKER))
def test_every_cell_of_the_workers_forwards_is_reproduced(revision, table):
    for forward, got in zip(table["forwards"], worker_cells(revision, table), strict=True):
        part = forward["expect"].get("slot_slice")
        if part:
            got["slot_blocks"] = [written[slice(*part)] for written in got["slot_blocks"]]
        left_out = NOT_COMPARED[WORKER]
        expected = {key: cell for key, cell in forward["expect"].items() if key not in left_out}
        assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("file", [RUNNER, WORKER])
def test_no_key_is_silently_ignored_and_no_named_one_is_missing(file, revision):
    forwards = [
        forward
        for table in golden_tables.load(f"{revision}_{file}")
        for forward in table["forwards"]
    ]
    keys = {key for forward in forwards for key in (*forward, *forward["expect"])} - {"expect"}
    assert keys == COMPARED[file] | NOT_COMPARED[file].keys()


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_comparisons_notice_a_changed_prompt(revision):
    """A guard of the tests themselves: with one token more nothing is the same."""
    table = golden_tables.load(f"{revision}_{RUNNER}")[0]
    before = runner_cells(revision, table)
    table["forwards"][0]["new"][0]["prompt_len"] += 1
    assert runner_cells(revision, table) != before
    table = golden_tables.load(f"{revision}_{WORKER}")[1]
    before = worker_cells(revision, table)
    request = table["forwards"][0]["request"]
    request["prompt_len"] += 1
    request["prompt"][0]["len"] += 1
    assert worker_cells(revision, table) != before


def runner_cells(revision, table):
    """The model's forwards. The published test hands them to the runner itself; they are those
    that the scheduler makes without interleaving."""
    model = golden_tables.model_of(revision, golden_tables.config_of(table) | {"interleave": False})
    state = model.initial()
    cells = []
    for forward in table["forwards"]:
        for request in forward["new"]:
            arrival = golden_tables.Arrival(0, request["id"], request["prompt_len"], ENDLESS)
            state = model.arrive(state, golden_tables.request_of(arrival))
        computed = {sequence.id: sequence.computed for sequence in state.admitted}
        state, seen = model.step(state)
        scheduled = dict(seen["scheduled"])
        if not seen["emitted"]:
            # Of a prompt of several chunks the first is handed over whole, at both releases:
            # left padding counts as tokens.
            for name, pad in seen["left_pad_blocks"].items():
                scheduled[name] += pad * model.config.block_size if name not in computed else 0
        cells.append(
            {
                "cached": {name: computed[name] for name in scheduled if name in computed},
                "num_scheduled_tokens": scheduled,
                "tkv": seen["tkv"],
                "n_outputs": len(seen["emitted"]),
                "n_tokens_of_output_0": next(iter(seen["emitted"].values()), 0),
            }
        )
    return cells


def worker_cells(revision, table):
    """The model's forwards, and its arithmetic where the table only plans."""
    model = golden_tables.model_of(revision, golden_tables.config_of(table))
    config = model.config
    state = model.initial()
    added: list[str] = []
    # Tokens of each request up to the end of its last forward.
    reached: dict[str, int] = {}
    cells = []
    for forward in table["forwards"]:
        if forward["op"] == "plan":
            cells.append(planned(config, forward["prompt_len"], forward["num_computed_tokens"]))
            continue
        if forward["op"] == "new":
            request = golden_tables.request_of(golden_tables.arrival_of(forward["request"]))
            added.append(request.id)
            state = model.arrive(state, request)
        # The forward once more without its end, at which requests that finish give up their blocks.
        decided, decision = model.revision.decide(config, model.revision, state)
        during, _ = scheduler.compute(config, model.revision, decided, decision)
        held = {sequence.id: sequence for sequence in during.admitted}
        state, seen = model.step(state)
        names = list(seen["scheduled"])
        if revision == "2.1.2":
            # Rows in the order of batch slots: of arrival, as no request gets a slot that was in
            # use.
            names.sort(key=added.index)
        for name, tokens in seen["scheduled"].items():
            reached[name] = reached.get(name, held[name].prefix_hit) + tokens
        pads = seen["left_pad_blocks"]
        goes_on = seen["kind"] == "prefill" and not seen["emitted"]
        cells.append(
            {
                # A table ends with the chunk, even where blocks are held for the next one.
                "block_tables": [
                    [0] * pads[name]
                    + list(held[name].blocks[: blocks_for(reached[name], config.block_size)])
                    for name in names
                ],
                "slot_blocks": [seen["slot_blocks"][name] for name in names],
                "req_ids": names,
                "num_sampled_token_ids": len(seen["emitted"]),
                "tkv": seen["tkv"],
                "n_free_blocks": seen["free_blocks"],
                "left_padding": {name: pads[name] * config.block_size for name in names},
                # Told to the scheduler as long as the prompt goes on.
                "prefix_cache_hit_len": {
                    name: golden_tables.usable_blocks(config, held[name]) * config.block_size
                    for name in names
                }
                if goes_on
                else None,
            }
        )
    return cells


def planned(config, prompt, hit):
    """The chunks of a prompt of which the first `hit` tokens are cached."""
    chunks = documented.chunk_count(prompt, config.chunk_size)
    pad = documented.left_padding_blocks(prompt, config.chunk_size, config.block_size)
    cached = hit // config.block_size
    chunk_blocks = config.chunk_size // config.block_size
    return {
        "chunk_count": chunks,
        "padding_blocks": pad,
        "usable_cache_blocks": documented.usable_blocks(pad, cached, chunks, chunk_blocks),
        "total_cache_blocks": cached,
    }
