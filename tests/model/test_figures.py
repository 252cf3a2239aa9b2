"""The figures of Spyre's scheduling page, redrawn from the model and compared whole, row by row.

A figure counts the token that a row produces (padding + prompt + decoded), the engine the tokens
that are in the cache: a figure's tkv is the engine's plus one, and its jumps show one row earlier.
"""

import itertools
from functools import cache

import pytest

from schedproof.model.scenario import Request
from schedproof.model.spyre import documented
from schedproof.model.spyre.model import make_model

from .. import golden_tables

REVISIONS = ("2.1.2", "documented", "sound")
# 2.5.2 has no max-model-length rule and pauses: it runs the scheduling figures in another way.
PREFILL_REVISIONS = (*REVISIONS, "2.5.2")
BLOCK = golden_tables.FIGURE_BLOCK
PREFILL = ("prefill_single_chunks", "prefill_three_chunks")
SCHEDULING = ("scheduling_admission_constraints", "scheduling_padding_tkv_jump")
PREFIX_CACHING = ("prefix_caching_1", "prefix_caching_2", "prefix_caching_3")

# What is not compared, and why. Every other cell of every row is.
NOT_COMPARED = {
    "order of `decoding`": "the figure lists requests as they joined, the engine puts the one "
    "that has just prefilled first; both are sorted by id here",
    "timeline_admission_constraints": "its times are approximate; the exact ones follow from the "
    "admission figure, which is compared",
    "`max_batch_tkv_limit` of the figures prefix_caching_*": "some of their requests alone "
    "exceed it; they run with max_model_len in its place",
    "cells in CORRECTED": "the figures contradict the page there: the first shows the last cached "
    "token where it means the first computed one, the second was drawn by hand with one chunk "
    "where there are two, and with cached tokens that end within a block",
}
# (figure, row) -> cells of `prefilling` that a figure has wrong, as the rules have them.
CORRECTED: dict[tuple[str, int], dict[str, int]] = {
    ("prefix_caching_1", 0): {"chunk_prompt_token_start": 896},
    ("prefix_caching_2", 0): {
        "cached_tokens": 192,
        "chunks_total": 2,
        "chunks_done": 1,
        "chunk_prompt_token_start": 384,
        "inner_padding": 192,
    },
}


@cache
def figure(name):
    return next(shown for shown in golden_tables.load("docs_figures.json") if shown["name"] == name)


def test_every_figure_is_compared_or_named():
    names = {shown["name"] for shown in golden_tables.load("docs_figures.json")}
    others = names - {*PREFILL, *SCHEDULING, *PREFIX_CACHING}
    assert others == {"timeline_admission_constraints"} == others & NOT_COMPARED.keys()


def sorted_row(row):
    return row | {"decoding": sorted(row["decoding"], key=lambda request: str(request["id"]))}


def admission_arrivals():
    return [
        golden_tables.Arrival(
            request["arrival_step"],
            request["id"],
            request["prompt_len"],
            request["max_output_tokens"],
            request["total_tokens_generated"],
        )
        for request in figure("scheduling_admission_constraints")["generator_requests"]
    ]


def admission_steps(revision):
    """The run of the admission figure, and the idle step after it."""
    target = golden_tables.started(
        revision, **golden_tables.config_of(figure("scheduling_admission_constraints"))
    )
    yield from golden_tables.play(target, admission_arrivals())
    yield target.step()["step"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_admission_figure_is_reproduced_row_by_row(revision):
    arrivals = admission_arrivals()
    initial = {
        "step": 0,
        "step_type": "waiting",
        "waiting": [
            golden_tables.drawn_waiting(arrival) for arrival in arrivals if arrival.step == 0
        ],
        "prefilling": None,
        "decoding": [],
    }
    drawn = [initial, *golden_tables.drawn_rows(admission_steps(revision), arrivals, first=1)]
    rows = figure("scheduling_admission_constraints")["steps"]
    assert len(drawn) == len(rows)
    assert [d for d, r in zip(drawn, rows, strict=True) if d != sorted_row(r)] == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_engine_tkv_is_the_figures_tkv_minus_one_away_from_block_borders(revision):
    rows = figure("scheduling_admission_constraints")["steps"][1:]
    compared = 0
    for seen, row in zip(admission_steps(revision), rows, strict=True):
        lengths = [request["prompt_len"] + request["decoded"] - 1 for request in row["decoding"]]
        if row["step_type"] == "decode" and all(length % BLOCK for length in lengths):
            assert seen["tkv"] == max(request["tkv"] for request in row["decoding"]) - 1
            assert {n: p * BLOCK for n, p in seen["left_pad_blocks"].items()} == {
                request["id"]: request["padding"] for request in row["decoding"]
            }
            compared += 1
    assert compared == sum(row["step_type"] == "decode" for row in rows) - 1


@pytest.mark.parametrize("revision", PREFILL_REVISIONS)
@pytest.mark.parametrize("name", PREFILL)
def test_the_prefill_figures_are_reproduced(name, revision):
    shown = figure(name)
    [request] = shown["derived_requests"]
    requests = [
        golden_tables.Arrival(0, request["id"], request["prompt_len"], request["max_tokens"])
    ]
    steps = golden_tables.play(
        golden_tables.started(revision, **golden_tables.config_of(shown)), requests
    )
    drawn = list(golden_tables.drawn_rows(steps, requests, first=0))
    assert drawn[: len(shown["steps"])] == shown["steps"]
    assert drawn[len(shown["steps"])]["step_type"] == "decode"


@pytest.mark.parametrize("revision", PREFILL_REVISIONS)
@pytest.mark.parametrize("name", PREFIX_CACHING)
def test_the_prefix_caching_figures_are_reproduced_but_for_the_corrected_cells(name, revision):
    rows = []
    for row in figure(name)["steps"]:
        corrected = CORRECTED.get((name, row["step"]), {})
        assert all(row["prefilling"][cell] != right for cell, right in corrected.items())
        rows.append(row | {"prefilling": row["prefilling"] | corrected})
    assert list(cached_prefill_rows(name, revision)) == rows


def cached_prefill_rows(name, revision):
    """The prefill of the figure's second request, after its first request has come and gone.

    The second prompt is the first one's beginning, then the first part of its output, then its
    own.
    """
    shown = figure(name)
    lengths = shown["requests"]
    changed = {"prefix_caching": True, "max_batch_tkv": shown["config"]["max_model_len"]}
    model = golden_tables.model_of(revision, golden_tables.config_of(shown) | changed)
    first, second = lengths["req1_id"], lengths["req2_id"]
    common = ("common", lengths["common_prompt_tokens"])
    output = lengths["prefix_output_tokens"]
    earlier = [common, ("first's own", lengths["req1_diff_prompt"])]
    state = model.arrive(model.initial(), request(first, earlier, output + lengths["req1_output"]))
    while state.waiting or state.running:
        state, _ = model.step(state)
    later = [common, (f"out:{first}", output), ("second's own", lengths["req2_diff_prompt"])]
    newcomer = request(second, later, lengths["req2_max_output"])
    state = model.arrive(state, newcomer)
    prompt, chunk = newcomer.prompt_len, model.config.chunk_size
    done = None
    for number in itertools.count():
        state, seen = model.step(state)
        hit, pad = seen["prefix_hit"][second], seen["left_pad_blocks"][second] * BLOCK
        start = hit if done is None else done
        done = start + seen["scheduled"][second]
        cached = golden_tables.usable_blocks(model.config, state.running[0]) * BLOCK
        yield {
            "step": number,
            "step_type": seen["kind"],
            "waiting": seen["waiting"],
            "prefilling": {
                "id": second,
                "cached_tokens": cached,
                "prompt_len": prompt,
                "chunks_total": documented.chunk_count(prompt, chunk),
                "chunks_done": (pad + start) // chunk,
                "chunk_prompt_token_start": start,
                "chunk_prompt_token_end": done,
                "left_padding": pad,
                "right_padding": -prompt % BLOCK,
                "inner_padding": hit - cached,
            },
            "decoding": [],
        }
        if seen["emitted"]:
            assert done == prompt
            return


def request(name, prompt, max_tokens):
    """A request whose prompt has these segments, the empty ones left out."""
    segments = tuple((stream, length) for stream, length in prompt if length)
    return Request(id=name, arrival=0, prompt=segments, max_tokens=max_tokens)


def jump_rows():
    """The padding figure from its first row on: every request decodes until it is at its end."""
    shown = figure("scheduling_padding_tkv_jump")
    requests = {
        request["id"]: golden_tables.Arrival(
            0,
            request["id"],
            request["prompt_len"],
            request["max_tokens"],
            request["generated_at_end"],
        )
        for request in shown["derived_requests"]
    }
    generated = {request["id"]: request["decoded"] for request in shown["steps"][0]["decoding"]}
    empty = {"waiting": [], "prefilling": None}
    for number in range(len(shown["steps"]) - 1):
        done = [name for name in sorted(generated) if generated[name] == requests[name].output_len]
        row = {"step": number, "step_type": "decode", **empty}
        row["decoding"] = golden_tables.drawn_batch(requests, generated)
        yield row | ({"completed": done} if done else {})
        generated = {name: g + 1 for name, g in generated.items() if name not in done}
    assert not generated
    yield {"step": len(shown["steps"]) - 1, "step_type": "done", **empty, "decoding": []}


def test_the_padding_figure_is_reproduced_row_by_row():
    """It starts in mid-run and its volume exceeds its own limit, so no scheduler drives it."""
    rows = figure("scheduling_padding_tkv_jump")["steps"]
    assert list(jump_rows()) == [sorted_row(row) for row in rows]


def test_tkv_jumps_backward_and_forward_where_the_caption_says():
    """Backward after rows 11 and 16, forward after 52; down after a finish in 58 and 65."""
    jumps: dict[int, dict[str, int]] = {}
    for before, after in itertools.pairwise(jump_rows()):
        old = {request["id"]: request["tkv"] for request in before["decoding"]}
        for request in after["decoding"]:
            if request["tkv"] - old[request["id"]] != 1:
                jump = request["tkv"] - old[request["id"]] - 1
                jumps.setdefault(before["step"], {})[request["id"]] = jump
    assert jumps == {
        11: {"2": -BLOCK},
        16: {"1": -BLOCK},
        52: {"1": BLOCK, "2": BLOCK},
        58: {"1": -3 * BLOCK, "2": -3 * BLOCK},
        65: {"1": -BLOCK},
    }


@pytest.mark.parametrize("revision", REVISIONS)
def test_request_1_is_held_at_steps_5_to_22_until_request_0_completes(revision):
    steps = dict(enumerate(admission_steps(revision), 1))
    chunks = [
        n for n, seen in steps.items() if seen["kind"] == "prefill" and "1" in seen["scheduled"]
    ]
    assert chunks == [3, 5, 23]
    assert all(steps[n]["kind"] == "decode" for n in range(6, 23))
    assert steps[22]["finished"] == {"0": "eos"}
    model, state = state_before(revision, 7)
    assert refused_by(model, state) == {"max-model-length"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_request_4_is_held_at_steps_35_to_45_by_the_volume(revision):
    steps = dict(enumerate(admission_steps(revision), 1))
    assert all(steps[n]["kind"] == "decode" and "4" in steps[n]["waiting"] for n in range(35, 46))
    assert steps[45]["finished"] == {"2": "eos"}
    assert steps[46]["scheduled"] == {"4": 105}
    for number in (35, 45):
        model, state = state_before(revision, number)
        assert refused_by(model, state) == {"volume"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_admitted_at_step_35_request_4_would_make_426_x_4_which_exceeds_1536(revision):
    model, state = state_before(revision, 35)
    newcomer = state.waiting[0]
    # It prefills in step 35, every request decodes in step 36.
    lengths = [sequence.computed + 1 for sequence in state.decoding] + [newcomer.prompt + 1]
    assert documented.max_tkv(lengths, BLOCK) == 426
    assert 426 * len(lengths) == 1704 > model.config.max_batch_tkv == 1536


@pytest.mark.parametrize("revision", REVISIONS)
def test_requests_6_and_7_wait_for_a_slot(revision):
    for number, name in ((50, "6"), (57, "7")):
        model, state = state_before(revision, number)
        assert state.waiting[0].id == name
        assert len(state.running) == model.config.max_num_seqs
        assert not documented.satisfies_first_chunk(model.config, state)


def state_before(revision, step):
    """The model's state in the admission figure before engine step `step` (from 1)."""
    config = golden_tables.config_of(figure("scheduling_admission_constraints"))
    model = make_model(revision, config)
    state = model.initial()
    for number in range(step):
        for arrival in admission_arrivals():
            if arrival.step == number:
                request = Request(
                    id=arrival.id,
                    arrival=arrival.step,
                    prompt=((arrival.id, arrival.prompt),),
                    max_tokens=arrival.max_tokens,
                    output_len=arrival.output_len,
                )
                state = model.arrive(state, request)
        if number < step - 1:
            state, _ = model.step(state)
    return model, state


def refused_by(model, state):
    """Which last-chunk constraints stand against the request that is next."""
    sequence = state.prefilling or state.waiting[0]
    assert not documented.may_prefill(model.config, model.revision, state, sequence)
    assert not documented.must_interleave(model.config, state)
    current = model.revision.current_tkv(model.config, state)
    against = set()
    if not documented.fits_model_length(model.config, current, state.decoding, sequence):
        against.add("max-model-length")
    if not documented.fits_volume(model.config, model.revision, current, state.decoding, sequence):
        against.add("volume")
    return against
