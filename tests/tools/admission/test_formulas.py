"""The bench of volumetric checks: numbers reckoned by hand, counts against brute force."""

import json
import random

import pytest

from schedproof.model.spyre import documented, peak, volumetric
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.spyre.volumetric import Decoding, Newcomer
from schedproof.tools.admission import formulas
from schedproof.tools.admission.formulas import BASE, NAMES, Counted, alone, checked_by, run
from schedproof.tools.admission.loads import (
    LIMIT,
    PRODUCTION,
    all_loads,
    ending_early,
    load,
    random_batch,
    shares,
)

SMALL = SpyreConfig(block_size=4, chunk_size=8, max_num_seqs=4, max_model_len=16, max_batch_tkv=16)
# Both end with 8 tokens, the second one step behind the first: 2 x 8 is the limit.
PAIR = load("pair", "two that just fit", [(0, 4, 5), (0, 4, 5)])

# (arrival, prompt, max_tokens)
FIRST_OF_CHAT = [(0, 78, 174), (12, 199, 888), (27, 555, 61)]


def by_steps(decoding, newcomer, block):
    """Largest volume of the newcomer's decode steps, one after the other."""
    all_requests = [(member.computed, member.remaining) for member in decoding]
    all_requests.append((newcomer.prompt, newcomer.remaining))
    largest = 0
    for step in range(1, newcomer.remaining + 1):
        lengths = [tokens + step for tokens, remaining in all_requests if remaining >= step]
        largest = max(largest, len(lengths) * documented.max_tkv(lengths, block))
    return largest


def small_batch(chance):
    """A batch and a newcomer in blocks of 4."""
    lengths = [chance.randint(1, 20) for _ in range(chance.randint(1, 4))]
    members = [
        Decoding(length, chance.randint(1, 12), own)
        for length, own in zip(lengths, documented.request_tkvs(lengths, 4), strict=True)
    ]
    return members, Newcomer(chance.randint(1, 20), chance.randint(2, 12))


def small_load(seed):
    """Twelve requests that crowd each other; none is longer than 23 tokens."""
    chance = random.Random(seed)
    asked = [
        (chance.randint(0, 30), chance.randint(1, 12), chance.randint(1, 12)) for _ in "x" * 12
    ]
    return load(f"small {seed}", "twelve small requests", sorted(asked))


CROWDED = SpyreConfig(
    block_size=4, chunk_size=8, max_num_seqs=4, max_model_len=24, max_batch_tkv=40
)


def tables(loads):
    """What the command would print for these loads on the small configuration."""
    results = {
        formulas.title(other): {name: run(CROWDED, name, other) for name in NAMES}
        for other in loads
    }
    checks = {name: alone(name, 20, 1) for name in NAMES}
    return formulas.markdown(loads, results, checks), formulas.plain(loads, results, checks)


def test_what_the_exact_check_lets_run_together_is_measured():
    # Prefill a, decode a, prefill b, decode both at tkv 6, 7, 8, decode b at tkv 8.
    measured = run(SMALL, "exact", PAIR)
    assert measured._asdict() == {
        "steps": 7,
        "chunk_mean": 1.0,
        "chunk_p95": 2,
        "token_mean": 1.0,
        "token_p95": 2,
        "batch": 8 / 5,
        "refusals": 0,
        "needless": 0,
        "unsafe": 0,
        "largest": 16,
        "beyond": 0,
    }


def test_what_the_extra_block_holds_back_is_measured():
    # 2 x (8 + 4) is beyond 16 in each of the three steps that b could have joined before a ends.
    measured = run(SMALL, "2.1.2", PAIR)
    assert measured._asdict() == {
        "steps": 10,
        "chunk_mean": 2.5,
        "chunk_p95": 5,
        "token_mean": 2.5,
        "token_p95": 5,
        "batch": 1.0,
        "refusals": 3,
        "needless": 3,
        "unsafe": 0,
        "largest": 8,
        "beyond": 0,
    }


def test_a_refusal_of_what_would_not_fit_is_none_though_safe():
    # 15 tokens are one too few while both are there; the last step of a has 2 x 8, too.
    tight = SpyreConfig(
        block_size=4, chunk_size=8, max_num_seqs=4, max_model_len=12, max_batch_tkv=15
    )
    for name in ("exact", "rounded", "2.1.2"):
        measured = run(tight, name, PAIR)
        assert (measured.steps, measured.refusals, measured.needless) == (10, 3, 0)


def test_waiting_for_the_first_token_goes_on_to_the_last_chunk():
    # Three idle steps, two chunks, and the only token comes with the second.
    measured = run(SMALL, "exact", load("one", "two chunks", [(3, 12, 1)]))
    assert (measured.steps, measured.chunk_mean, measured.token_mean) == (5, 0, 1)
    assert (measured.batch, measured.largest) == (0, 0)


@pytest.mark.parametrize(
    ("name", "limit", "asked", "largest"),
    [
        ("2.1.0", 8, [(0, 1, 5), (3, 2, 3)], 12),
        ("2.0.1", 6, [(0, 1, 4), (3, 2, 2)], 8),
        ("document_own_tkv", 5, [(0, 1, 3), (0, 1, 2)], 8),
    ],
)
def test_the_smallest_published_counterexamples_join_unsafely_and_exceed(
    name, limit, asked, largest
):
    config = SpyreConfig(block_size=2, chunk_size=2, max_model_len=limit, max_batch_tkv=limit)
    broken = run(config, name, load("broken", "", asked))
    assert (broken.unsafe, broken.largest, broken.beyond) == (1, largest, largest - limit)
    kept = run(config, "exact", load("broken", "", asked))
    assert (kept.unsafe, kept.beyond) == (0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_is_though_safe_just_when_no_step_would_exceed(name):
    chance = random.Random(name)
    for _ in range(200):
        decoding, newcomer = small_batch(chance)
        volume = by_steps(decoding, newcomer, 4)
        for limit in (volume - 1, volume, volume + chance.randint(1, 12)):
            counted = Counted(checked_by(name))
            accepted = counted(decoding, newcomer, 4, limit, 0)
            assert counted.refusals == (not accepted)
            assert counted.needless == (not accepted and volume <= limit)
            assert counted.unsafe == (accepted and volume > limit)


@pytest.mark.parametrize("name", NAMES)
def test_counting_changes_no_step(name):
    for seed in range(5):
        small = small_load(seed)
        model = SpyreModel(CROWDED, checked_by(name))
        state, steps, largest, left = model.initial(), 0, 0, {r.id for r in small.requests}
        while left:
            for request in small.requests:
                if request.arrival == steps:
                    state = model.arrive(state, request)
            state, seen = model.step(state)
            if seen["kind"] == "decode":
                largest = max(largest, len(seen["scheduled"]) * seen["tkv"])
            left -= seen["finished"].keys()
            steps += 1
        measured = run(CROWDED, name, small)
        assert (measured.steps, measured.largest) == (steps, largest)


def test_the_exact_check_refuses_nothing_safe_and_never_exceeds():
    refused = 0
    for seed in range(40):
        measured = run(CROWDED, "exact", small_load(seed))
        assert (measured.needless, measured.unsafe, measured.beyond) == (0, 0, 0)
        refused += measured.refusals
    assert refused > 0
    assert alone("exact", 200, 1) == (200, 0, 0)


@pytest.mark.parametrize("name", ["2.1.2", "common_base", "rounded"])
def test_a_sound_check_accepts_nothing_that_the_exact_one_refuses(name):
    needless = 0
    for seed in range(40):
        measured = run(CROWDED, name, small_load(seed))
        assert (measured.unsafe, measured.beyond) == (0, 0)
        needless += measured.needless
    assert needless > 0
    assert alone(name, 200, 1).permissive == 0


@pytest.mark.parametrize("name", ["document_own_tkv", "1.10.0", "2.0.1", "2.1.0"])
def test_random_batches_show_that_an_unsound_formula_accepts_too_much(name):
    assert alone(name, 500, 1).permissive > 0


def test_random_batches_are_such_as_the_model_holds():
    chance = random.Random(1)
    for _ in range(300):
        decoding, newcomer = random_batch(chance)
        longest = PRODUCTION.max_model_len
        assert 1 <= len(decoding) < PRODUCTION.max_num_seqs
        assert all(member.computed > 0 <= member.remaining for member in decoding)
        assert all(member.computed + member.remaining <= longest for member in decoding)
        assert 0 < newcomer.prompt <= newcomer.prompt + newcomer.remaining <= longest


def test_the_same_seed_gives_the_same_tables_and_another_seed_other_loads():
    loads = [small_load(1), ending_early(small_load(1), 7)]
    assert tables(loads) == tables(loads)
    assert all_loads(3, quick=True) == all_loads(3, quick=True)
    assert all_loads(3, quick=True) != all_loads(4, quick=True)


def test_a_seed_means_the_same_requests_everywhere():
    chat = all_loads(0, quick=False)[0]
    first = [
        (request.arrival, request.prompt_len, request.max_tokens) for request in chat.requests[:3]
    ]
    assert first == FIRST_OF_CHAT


def test_every_formula_and_check_has_its_numbers_for_every_load():
    assert {*NAMES} == {*volumetric.FORMULAS, *peak.CHECKS}
    loads = [small_load(1), ending_early(small_load(1), 7)]
    text, numbers = tables(loads)
    summary, *details, last = [part for part in text.split("\n\n") if part.startswith("|")]
    head = [cell.strip() for cell in summary.splitlines()[0].strip("|").split("|")]
    assert sorted(head[2:]) == sorted({*NAMES} - {BASE})
    assert len(details) == len(loads)
    for part in details:
        cells = [line.split("|")[1].split(",") for line in part.splitlines()[2:]]
        assert sorted(name.strip() for cell in cells for name in cell) == sorted(NAMES)
    assert [line.split("|")[1].strip() for line in last.splitlines()[2:]] == [*NAMES]
    assert all([*shown["checks"]] == [*NAMES] for shown in numbers["loads"])
    assert json.loads(json.dumps(numbers)) == numbers


def test_an_exceeded_limit_is_marked_in_the_summary():
    loads = [small_load(seed) for seed in range(3)]
    results = {named.name: {name: run(CROWDED, name, named) for name in NAMES} for named in loads}
    beyond = sum(m.beyond > 0 for found in results.values() for m in found.values())
    assert formulas.summary(loads, results).count(" !") == beyond > 0


def test_early_eos_cuts_outputs_and_leaves_what_the_scheduler_is_told():
    before = all_loads(0, quick=True)[0]
    after = ending_early(before, 0)
    assert after.early_eos
    assert not before.early_eos
    for request, cut in zip(before.requests, after.requests, strict=True):
        assert (cut.arrival, cut.prompt, cut.max_tokens) == (
            request.arrival,
            request.prompt,
            request.max_tokens,
        )
        assert 1 <= cut.output_len <= request.max_tokens
    assert any(request.output_len < request.max_tokens for request in after.requests)


def test_no_load_holds_a_request_that_can_never_run():
    model = SpyreModel(PRODUCTION, checked_by("exact"))
    for quick in (False, True):
        for given in all_loads(0, quick):
            arrivals = [request.arrival for request in given.requests]
            assert arrivals == sorted(arrivals)
            assert [model.refusal(request) for request in given.requests] == [None] * len(arrivals)


@pytest.mark.parametrize("batch", [5, 7, 11])
def test_shares_fit_exactly_and_rounded_they_do_not(batch):
    share = LIMIT // batch
    assert share % PRODUCTION.block_size
    shared = load("shares", "", shares([batch]))
    exact, rounded = (run(PRODUCTION, name, shared) for name in ("exact", "rounded"))
    assert (exact.refusals, exact.largest) == (0, batch * share)
    assert rounded.needless > 0
    assert rounded.largest <= (batch - 1) * (share + PRODUCTION.block_size)


def test_the_largest_wait_of_19_in_20_is_the_nineteenth():
    assert formulas.p95(range(1, 21)) == 19
    assert formulas.p95([7]) == 7
