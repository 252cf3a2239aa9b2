"""A fault between the functions of a step, or beside its request, makes a lemma fail."""

import importlib

import pytest

from schedproof.tests.mutants.planting import imported_anew
from schedproof.tests.solver.spyre.test_hidden_faults import changed

MODEL, STEP, POOL = "spyre/model.py", "spyre/scheduler.py", "spyre/blocks.py"
STEPS = "        return scheduler.step(self.config, self.revision, state, abort_inside)\n"
ABORTS = "        return scheduler.abort(self.config, self.revision, state, request_id)\n"
ARRIVES = "        return scheduler.arrive(state, Sequence.of(request))\n"
READS = "    read = read_config(config, revision)\n"
PROMISES = "    for request in state.admitted:\n        promised +="
RELEASES = "        state = state._replace(pool=blocks.release(config, revision, state, request))\n"
RELEASED = "        pool = blocks.release(config, revision, after, request)\n"
SHARED = "    shared = sum(block in held for block in prefix_hit(config, state, newcomer))\n"
WITHIN = "        state = abort(config, revision, state, request_id, inside=True)\n"
PREFILLS = "            prefilling.append(request)\n"
DECODED_TKV = "    tkv = documented.max_tkv(lengths, block)\n"
COUNTED = "    counted, covered = revision.progress(config, request, end)\n"
LEAVES = "    for request in leaving:\n"
FAULTS = {
    "an abort within a step loses free blocks": (
        "SPY-R50",
        "step_passes_states_on_sound",
        MODEL,
        STEPS,
        STEPS.replace("return", "after, seen =") + "        if abort_inside:\n"
        "            after = after._replace(pool=after.pool._replace(tail=()))\n"
        "        return after, seen\n",
    ),
    "an abort loses free blocks": (
        "SPY-R50",
        "step_passes_states_on_2.5.2",
        MODEL,
        ABORTS,
        ABORTS.replace("return", "after =")
        + "        return after._replace(pool=after.pool._replace(head=()))\n",
    ),
    "an arrival loses free blocks": (
        "SPY-R50",
        "arrival_waits_uncomputed_1_sound",
        MODEL,
        ARRIVES,
        f"        state = state._replace(pool=state.pool._replace(tail=()))\n{ARRIVES}",
    ),
    "with prefix caching, a pool has a block more": (
        "SPY-R50",
        "model_decides_by_its_revision_sound",
        MODEL,
        READS,
        f"{READS}    if read.num_blocks and read.prefix_caching:\n"
        "        import msgspec\n\n"
        "        more = read.num_blocks + 1\n"
        "        read = msgspec.structs.replace(read, num_blocks=more)\n",
    ),
    "two that are paused are promised nothing": (
        "SPY-R50",
        "code_adds_each_promise_2.5.2",
        POOL,
        PROMISES,
        PROMISES.replace("state.", "state.running if len(state.paused) == 2 else state."),
    ),
    "the third that ends in a step gives nothing back": (
        "SPY-R50",
        "requests_that_end_together_keep_promises_covered_sound",
        STEP,
        RELEASES,
        f"        if len(leaving) < 3 or request is not leaving[2]:\n    {RELEASES}",
    ),
    "while another waits, an early end after a hit loses a block": (
        "SPY-R50",
        "requests_that_end_together_keep_promises_covered_sound",
        STEP,
        RELEASES,
        "        early = request.generated < request.max_tokens\n"
        "        if state.waiting and request.prefix_hit and early:\n"
        f"            request = replace(request, blocks=request.blocks[:-1])\n{RELEASES}",
    ),
    "while another waits, an abort gives nothing back": (
        "SPY-R50",
        "code_keeps_promises_covered_at_abort_sound",
        STEP,
        RELEASED,
        RELEASED.replace(", after, request", ", state if after.waiting else after, request"),
    ),
    "three hit blocks count as four shared ones": (
        "SPY-R50",
        "room_counts_each_shared_block_2.5.2",
        POOL,
        SHARED,
        f"{SHARED}    shared += len(prefix_hit(config, state, newcomer)) > 2\n",
    ),
    "an abort within a step takes paused requests along": (
        "SPY-R51",
        "step_passes_states_on_2.5.2",
        STEP,
        WITHIN,
        f"{WITHIN}        state = state._replace(paused=state.paused[:1])\n",
    ),
    "two aborts within a step turn the queue": (
        "SPY-R53",
        "step_passes_states_on_sound",
        STEP,
        WITHIN,
        f"{WITHIN}    if len(abort_inside) > 1:\n"
        "        state = state._replace(waiting=state.waiting[::-1])\n",
    ),
    "a decode step of three reports a block too many": (
        "SPY-R41",
        "decode_step_reports_max_tkv_sound",
        "spyre/forward.py",
        DECODED_TKV,
        DECODED_TKV.replace(")\n", ") + (block if len(lengths) > 2 else 0)\n"),
    ),
    "while two wait behind it, a prompt computes a token less": (
        "SPY-R18",
        "chunk_ignores_others_sound",
        "spyre/forward.py",
        COUNTED,
        "    if len(waiting) > 1 and end < request.prompt and end - start > 1:\n"
        f"        end -= 1\n{COUNTED}",
    ),
    "a decode step of two computes a token of a prompt anew": (
        "SPY-R18",
        "decode_step_leaves_others_sound",
        "spyre/forward.py",
        PREFILLS,
        "            if len(state.running) > 2:\n"
        f"                request = replace(request, computed=request.computed - 1)\n{PREFILLS}",
    ),
    "two that end together send a prompt back to its hit": (
        "SPY-R18",
        "decode_step_leaves_others_2.1.2",
        STEP,
        LEAVES,
        "    if len(leaving) > 1:\n"
        "        running = [\n"
        "            one if one.prefilled else replace(one, computed=one.prefix_hit)\n"
        "            for one in state.running\n"
        "        ]\n"
        f"        state = state._replace(running=tuple(running))\n{LEAVES}",
    ),
}


@pytest.mark.parametrize(("rule", "name", "file", "line", "instead"), FAULTS.values(), ids=FAULTS)
def test_a_fault_makes_a_lemma_of_the_rule_fail(rule, name, file, line, instead):
    with imported_anew(changed([(file, line, instead)])):
        proofs = importlib.import_module("schedproof.solver.spyre.proofs_by_rule")
        discharge = importlib.import_module("schedproof.solver.smt.obligation").discharge
        [lemma] = [lemma for lemma in proofs.PROOFS[rule].obligations(64) if lemma.name == name]
        [found] = discharge([lemma])
    assert found.status in ("refuted", "unknown")
