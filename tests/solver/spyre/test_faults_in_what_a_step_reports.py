"""A fault in what a step reports, or in a state that the lemmas once left out, makes a lemma fail.

With each fault, some run of the model exceeds the limit.
"""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import STEP, skips, status

FORWARD, PAUSING = "spyre/forward.py", "spyre/release_2_5_2.py"
RUNS = "decoding_requests_run_together"
SETTLED = "    kept, paused = settled(fairness_order(config, state), partial(fits_limit, config))\n"
ALL_STAY = "kept, paused = [*kept, *paused], []\n"


def in_forward(line, instead):
    return [(FORWARD, line, instead)]


LENGTH = "        length = request.computed + 1\n"
SCHEDULED = "        dict.fromkeys(names, 1),\n"


@pytest.mark.parametrize(
    ("lemma", "changes"),
    [
        (
            f"{RUNS}_1",
            in_forward(
                "    tkv = documented.max_tkv(lengths, block)\n",
                "    tkv = documented.max_tkv(lengths, block) + 1\n",
            ),
        ),
        (
            f"{RUNS}_1",
            in_forward(
                SCHEDULED, "        dict.fromkeys([request.id for request in running], 1),\n"
            ),
        ),
        (
            "tkv_is_no_larger_than_needed_2",
            [
                (
                    "spyre/documented.py",
                    "    before_last: int = (blocks_for(longest, block_size) - 1) * block_size\n",
                    "    before_last: int = blocks_for(longest, block_size) * block_size\n",
                )
            ],
        ),
        (
            "tkv_is_no_larger_than_needed_1",
            [
                (
                    "spyre/documented.py",
                    "    return before_last + filled\n",
                    "    return before_last + block_size\n",
                )
            ],
        ),
    ],
)
def test_a_step_that_reports_more_than_its_requests_is_refuted(lemma, changes):
    assert status(lemma, changes)[0] == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["len(abort_inside) > 2", "len([*abort_inside]) > 2"])
def test_a_step_that_counts_the_aborts_within_it_is_not_proven(asked):
    line = "    state, computed = compute(config, revision, state, decision)\n"
    starts = (
        f"    if {asked} and state.waiting and state.prefilling is None:\n"
        '        decision = Decision("prefill", (state.waiting[0],))\n'
    )
    assert status("joining_request_was_accepted_1", [(STEP, line, starts + line)])[0] != "proven"
    if asked.startswith("len(a"):
        found = status("joining_request_was_accepted_3", [(STEP, line, starts + line)])
        assert found[0] != "proven"


@pytest.mark.slow
def test_two_requests_that_hold_many_blocks_are_seen():
    line = "    for request in state.running:\n        if request.computed < request.prompt:\n"
    large = "    large = [request for request in state.running if len(request.blocks) > 2]\n"
    changes = [
        (FORWARD, line, large + line),
        (FORWARD, LENGTH, LENGTH.replace("1", "(2 if len(large) > 1 else 1)")),
    ]
    assert status(f"{RUNS}_2", changes)[0] == "refuted"


@pytest.mark.slow
def test_aborts_to_report_are_seen_whatever_decodes():
    change = skips("len(state.decoding) > 2 and [name for name in state.aborted]")
    assert status("joining_request_was_accepted_3", [change])[0] == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lemma", "condition"),
    [
        ("decoding_requests_were_kept_1_1", "paused and paused[0].computed > state.tkv"),
        ("decoding_requests_were_kept_1_2", "len(state.paused) > 1 and state.decoding"),
    ],
)
def test_a_paused_request_that_resumes_although_it_does_not_fit_is_refuted(lemma, condition):
    stays = f"{SETTLED}    if {condition}:\n        {ALL_STAY}"
    change = (PAUSING, SETTLED, stays)
    assert status(lemma, [change], "2.5.2", pausing=True)[0] == "refuted"


AFTER_A_CHUNK = "    after = after_forward(state, waiting, running, True, tkv, pool)\n"


@pytest.mark.slow
def test_a_tkv_that_is_forgotten_as_the_first_request_joins_is_refuted():
    forgets = AFTER_A_CHUNK.replace("True, tkv", "bool(state.decoding), tkv * bool(state.decoding)")
    found = status(
        "remembered_tkv_covers_every_member_0", in_forward(AFTER_A_CHUNK, forgets), "2.1.2"
    )
    assert found[0] != "proven"


def test_a_decode_step_without_a_decoding_request_is_refuted():
    line = "    state, computed = compute(config, revision, state, decision)\n"
    idle = '    if decision.kind == "idle":\n        decision = Decision("decode", ())\n'
    assert status(f"{RUNS}_0", [(STEP, line, idle + line)])[0] == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("paused", [0, 1])
def test_a_request_that_joins_without_its_whole_prompt_is_refuted(paused):
    line = "    computed = replace(request, computed=counted)\n"
    more = line.replace("=counted", "=counted + (counted >= request.prompt and not state.decoding)")
    name = f"step_keeps_requests_0_{paused}"
    assert status(name, in_forward(line, more), "2.5.2", pausing=True)[0] != "proven"
