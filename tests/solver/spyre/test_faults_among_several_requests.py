"""A fault that shows only among several requests, or at one moment of a step, makes a lemma fail.

With each fault, some run of the model exceeds the limit.
"""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import STEP, status

DOCUMENTED, FORWARD = "spyre/documented.py", "spyre/forward.py"
WALK, PAUSING = "spyre/volumetric.py", "spyre/release_2_5_2.py"
JOINS, RUNS = "joining_request_was_accepted", "decoding_requests_run_together"
DEFINED = "code_does_only_what_is_defined"
HIT = (
    "    return request.computed or "
    "len(blocks.prefix_hit(config, state, request)) * config.block_size\n"
)
TO_COME = "    to_come = len(projection.decoding) + 1\n"
ASKED = "answer_at(tkv, to_come, projection.newcomer, limit)"
LEAVES = "    state = replace(state, running=tuple(running), aborted=())\n"
RELEASES = "    if request.blocks:\n        lost = "
LENGTH = "        length = request.computed + 1\n"


@pytest.mark.parametrize(
    "lemma", ["walk_counts_every_request_any", "walk_goes_on_as_with_the_rest"]
)
def test_a_walk_that_looks_at_all_terms_first_is_not_proven_for_any_number(lemma):
    looks = (
        "    own = min(\n"
        "        projection.newcomer, max(projection.decoding, default=projection.newcomer)\n"
        "    )\n"
        "    to_come -= 6 < to_come < 32\n"
    )
    changes = [
        (WALK, TO_COME, TO_COME + looks),
        (WALK, ASKED, "answer_at(tkv, to_come, own, limit)"),
    ]
    assert status(lemma, changes)[0] == "unknown"


@pytest.mark.parametrize("changed", ["config, State(), request", "config, state, later"])
def test_a_hit_of_another_request_or_pool_is_not_proven(changed):
    later = "    later = request._replace(prompt=1)\n" if "later" in changed else ""
    asks = f"{later}{HIT}".replace("config, state, request", changed)
    assert status(f"{JOINS}_1", [(DOCUMENTED, HIT, asks)])[0] == "unknown"


@pytest.mark.slow
def test_the_hit_of_a_request_in_its_prefill_may_have_grown():
    grown = (
        "    hit = len(blocks.prefix_hit(config, state, request)) * config.block_size\n"
        "    return request.computed + request.prefix_hit - hit if request.computed else hit\n"
    )
    assert status(f"{JOINS}_1", [(DOCUMENTED, HIT, grown)])[0] == "refuted"


@pytest.mark.nightly  # more than a minute
def test_four_requests_may_end_or_stay_in_four_ways():
    of_kinds = (
        "    ends = [request.output_len < request.max_tokens for request in leaving]\n"
        "    stays = [\n"
        "        request.output_len < request.max_tokens\n"
        "        for request in running\n"
        "        if 0 < request.generated < request.output_len\n"
        "    ]\n"
        "    if True in ends and False in ends and True in stays and False in stays:\n"
        "        leaving = []\n"
    )
    found = status(f"{RUNS}_4", [(STEP, LEAVES, of_kinds + LEAVES)])
    assert found[0] != "proven"


@pytest.mark.nightly  # more than a minute
def test_any_number_of_requests_may_have_room_in_their_last_block():
    line = "    for request in running:\n"
    roomy = (
        "    roomy = [\n"
        "        r for r in state.running if len(r.blocks) * block > r.computed\n"
        "    ]\n"
    )
    line = "    grown: list[Sequence] = []\n"
    changes = [
        (FORWARD, line, roomy + line),
        (FORWARD, LENGTH, "        length = request.computed + (2 if len(roomy) > 2 else 1)\n"),
    ]
    assert status(f"{RUNS}_5", changes)[0] != "proven"


@pytest.mark.slow
def test_an_abort_within_a_step_leaves_what_the_step_has_computed():
    undoes = (
        "    if 0 < request.computed < request.prompt and len(after.decoding) > 1:\n"
        "        after = after._replace(running=tuple([\n"
        "            one if one.computed < one.prompt + one.generated\n"
        "            else one._replace(generated=one.generated - 1) for one in after.running\n"
        "        ]))\n"
    )
    assert status("abort_only_removes_2", [(STEP, RELEASES, undoes + RELEASES)])[0] == "refuted"


@pytest.mark.slow
def test_a_request_that_has_ended_is_removed():
    line = "        state = state._replace(running=without(state.running, request.id))\n"
    stays = f"        if request.generated < request.output_len:\n    {line}"
    assert status("leaving_only_removes", [(STEP, line, stays)])[0] == "refuted"


@pytest.mark.slow
def test_code_that_tells_three_kinds_of_requests_apart_is_not_proven():
    line = "    first = state.waiting[0]\n"
    kinds = (
        "    line = state.waiting\n"
        "    if any(r.max_tokens < 4 for r in line) and any(r.max_tokens == 4 for r in line):\n"
        "        if any(r.max_tokens > 4 for r in line):\n"
        "            return line[0]\n"
    )
    assert status(DEFINED, [(DOCUMENTED, line, kinds + line)])[0] == "unknown"


@pytest.mark.slow
def test_a_batch_that_is_not_compared_while_others_pause_is_refuted():
    line = "    # If the whole batch is within the limit, every part of it is, too.\n"
    skips = "    if len(state.paused) > 1 and len(state.decoding) > 1:\n        return state\n"
    lemma = "resumed_requests_fit_2_2"
    assert status(lemma, [(PAUSING, line, skips + line)], "2.5.2", pausing=True)[0] == "refuted"
