"""A fault in the code behind a rule other than the limit makes a lemma of that rule fail."""

import importlib

import pytest

from schedproof.tests.mutants.planting import imported_anew
from schedproof.tests.solver.spyre.test_hidden_faults import changed

CHOOSES = "    first = state.waiting[0]\n    if not revision.fits_pool"
SORTS = "    return sorted(requests, key=lambda request: request.paused_steps, reverse=True)\n"
PROMISES = "    for request in state.admitted:\n        promised +="
HELD = "    return {block for request in state.admitted for block in request.blocks}\n"
STARTS = "    return allocator.start(state.pool, newcomer, hit, config.block_size)\n"
FAULTS = {
    "two requests that wait alone never start": (
        "SPY-R53",
        {"waiting_request_prevents_idling", "first_in_line_starts_at_rank_zero"},
        "spyre/documented.py",
        CHOOSES,
        f"    if len(state.waiting) > 1 and not state.running:\n        return None\n{CHOOSES}",
    ),
    "a request that prefills before another one waits never ends": (
        "SPY-R53",
        {"waiting_request_prevents_idling"},
        "spyre/documented.py",
        "    if ongoing is not None:\n",
        "    if ongoing is not None and state.waiting:\n        return None\n"
        "    if ongoing is not None:\n",
    ),
    "of three requests, the one paused longest is not the first, if long outputs go first": (
        "SPY-P01",
        {"step_keeps_fair_order_1_2_long"},
        "spyre/release_2_5_2.py",
        SORTS,
        "    if config.long_output_priority and len(requests) > 2:\n        return requests\n"
        f"{SORTS}",
    ),
    "what was promised to a paused request is given away": (
        "SPY-R50",
        {"step_keeps_promises_covered_admits_0_2.5.2"},
        "spyre/blocks.py",
        PROMISES,
        PROMISES.replace("state.admitted", "state.running"),
    ),
    "a block that a paused request shares is given back": (
        "SPY-R50",
        {"code_keeps_promises_covered_at_abort_2.5.2"},
        "spyre/blocks.py",
        HELD,
        HELD.replace("state.admitted", "state.running"),
    ),
    "the token after a hit is never computed": (
        "SPY-R54",
        {"newcomer_starts_with_its_hit"},
        "spyre/blocks.py",
        STARTS,
        STARTS.replace("return", "newcomer, pool =")
        + "    return newcomer._replace(computed=newcomer.computed + 1), pool\n",
    ),
}


@pytest.mark.parametrize(
    ("rule", "refuted", "file", "line", "instead"), FAULTS.values(), ids=FAULTS
)
def test_a_fault_makes_a_lemma_of_the_rule_fail(rule, refuted, file, line, instead):
    with imported_anew(changed([(file, line, instead)])):
        proofs = importlib.import_module("schedproof.solver.spyre.proofs_by_rule")
        discharge = importlib.import_module("schedproof.solver.smt.obligation").discharge
        lemmas = [lemma for lemma in proofs.PROOFS[rule].obligations(64) if lemma.name in refuted]
        found = {lemma.name for lemma in discharge(lemmas) if lemma.status == "refuted"}
    assert found == refuted
