"""A fault that shows only with one size of block makes a lemma fail if that size is set."""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import STEP, status

ABORTED = "    request = find(state.waiting + state.running + state.paused, request_id)\n"
LEFT = "        state = state._replace(running=without(state.running, request.id))\n"
ARRIVED = "        return scheduler.arrive(state, Sequence.of(request))\n"
CHOSEN = "    ongoing = state.prefilling\n"


@pytest.mark.parametrize(
    ("lemma", "revision", "change"),
    [
        (
            "abort_only_removes_1",
            "2.1.2",
            (STEP, ABORTED, "    if {}:\n        state = state._replace(tkv=0)\n" + ABORTED),
        ),
        (
            "leaving_only_removes",
            "2.1.2",
            (STEP, LEFT, LEFT + "        if {}:\n            state = state._replace(tkv=0)\n"),
        ),
        (
            "arrival_waits_uncomputed_1",
            "2.1.2",
            (
                "spyre/model.py",
                ARRIVED,
                "        config = self.config\n"
                "        if {}:\n            state = state._replace(tkv=0)\n" + ARRIVED,
            ),
        ),
        (
            "chosen_request_prefills_or_waits",
            "2.5.2",
            (
                "spyre/release_2_5_2.py",
                CHOSEN,
                "    ongoing = state.prefilling if not {} else None\n",
            ),
        ),
    ],
)
def test_outside_a_step_too(lemma, revision, change):
    file, line, instead = change
    fault = (file, line, instead.format("config.block_size == 48"))
    pausing = revision == "2.5.2"
    statuses = [status(lemma, [fault], revision, block=at, pausing=pausing)[0] for at in (48, 64)]
    assert statuses == ["refuted", "proven"]
