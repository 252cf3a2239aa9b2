"""A fault in the code behind a rule other than the limit makes a lemma of that rule fail."""

import importlib

import pytest

from schedproof.tests.mutants.planting import imported_anew
from schedproof.tests.solver.spyre.test_hidden_faults import changed

CHOOSES = "    first = state.waiting[0]\n    if not revision.fits_pool"
SORTS = "    return sorted(requests, key=lambda request: request.paused_steps, reverse=True)\n"
PROMISES = "    for request in state.admitted:\n        promised +="
HELD = "    return {block for request in state.admitted for block in request.blocks}\n"
LISTS = "    requests = [*state.paused, *state.decoding]\n"
ONGOING = "    ongoing = state.prefilling\n    if ongoing is not None:\n        return ongoing if"
LOSES = "    return 0\n"
WITHDRAWS = "        lost = revision.lost_blocks(config, revision, request, inside)\n"
COUNTS = "    return end, end\n"
STARTS = "    return allocator.start(state.pool, newcomer, hit, config.block_size)\n"
ARRIVES = "    return state._replace(waiting=(*state.waiting, newcomer))\n"
DECODES = '    return Decision("decode", decoding) if decoding else Decision("idle")\n'
ENDS = "            if request.generated == request.output_len:\n"
EMPTY_LINE = "    if not state.waiting:\n        return None\n    first"
CHUNK = "    chunk, block = config.chunk_size, config.block_size\n"
PLANS = "    start, end = documented.next_chunk(request.prompt, request.computed, chunk, block)\n"
SHORTER = "        end = min(end, request.computed + block)\n"
PREFILLS = "            prefilling.append(request)\n"
EMITTED = "    state = replace(state, running=tuple(running), aborted=())\n"
ASKED = "    if not revision.fits_model_length(config, tkv, decoding, newcomer):\n"
OUTPUTS = "request.generated, reverse=config.long_output_priority)\n"
NO_ROOM = "        if not revision.fits_pool(config, revision, state, newcomer):\n"
SHORT = f"{NO_ROOM}            return None\n"
FITS = "        if fits([*kept, request]):\n"
COUNTED = "    computed = replace(request, computed=counted)\n"
PAUSES = "    state = pause_and_resume(config, state)\n"
MAY = "    if state.paused or must_interleave(config, state):\n"
COMPUTED = "    after = after_forward(state, waiting, running, True, tkv, pool)\n"
NO_POOL = "    if free is None:\n"
DECODED_TKV = "    tkv = documented.max_tkv(lengths, block)\n"
CHUNK_TKV = "    return batch_tkv(config, running)\n\n\ndef batch"
LAST_TKV = "    return base + max((prompt - 1) % block_size, (tkv - 1) % block_size) + 1\n"
SHOWN_TKV = '        "tkv": computed.tkv or None,\n'
TOUCHES = "    tail = tuple([entry for entry in pool.tail if entry[0] not in reused])\n"
EVICTS = "    fresh, tail = fresh + never_used, tail[len(evicted) :]\n"
GIVES = "    return pool._replace(head=nameless + pool.head, tail=pool.tail + named)\n"
NEEDS = "    return -(-(request.prompt + request.max_tokens - 1) // config.block_size)\n"
SHARES = "    shared = sum(block in held for block in prefix_hit(config, state, newcomer))\n"
FILLS = "    return sequence._replace(published=full), pool\n"
JOINS = "        return scheduler.arrive(state, Sequence.of(request))\n"
DOOR = "        if longest > self.config.max_model_len:\n"
BEGINS = "made: State = self.state(pool=Pool(self.config.num_blocks))\n"
STEPS = "        return scheduler.step(self.config, self.revision, state, abort_inside)\n"
AGES = "request._replace(paused_steps=request.paused_steps + 1)"
SERVES = "    state, decision = revision.decide(config, revision, state)\n"
LEAVES = "    for request in leaving:\n        state = state._replace(running=without(state.running"
COVERED = "step_keeps_promises_covered"
WITHIN = "step_keeps_tkv_within_model_length"
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
    "while a request prefills and none decodes, the last in line starts": (
        "SPY-R53",
        {"only_first_in_line_starts"},
        "spyre/documented.py",
        ONGOING,
        "    if state.prefilling and not state.decoding and len(state.waiting) > 1:\n"
        f"        return state.waiting[-1]\n{ONGOING}",
    ),
    "requests queue in front": (
        "SPY-R53",
        {"arrival_waits_uncomputed_1_sound"},
        "spyre/scheduler.py",
        ARRIVES,
        ARRIVES.replace("(*state.waiting, newcomer)", "(newcomer, *state.waiting)"),
    ),
    "a step that reports an abort idles": (
        "SPY-R53",
        {"waiting_request_prevents_idling"},
        "spyre/documented.py",
        DECODES,
        f'    if state.aborted and decoding:\n        return Decision("idle")\n{DECODES}',
    ),
    "nothing starts once a promise is lost": (
        "SPY-R53",
        {"waiting_request_prevents_idling", "first_in_line_starts_at_rank_zero"},
        "spyre/documented.py",
        EMPTY_LINE,
        EMPTY_LINE.replace("state.waiting:", "state.waiting or state.lost_blocks:"),
    ),
    "with seven slots, a request that ends early never leaves": (
        "SPY-R53",
        {"decode_step_brings_end_nearer"},
        "spyre/scheduler.py",
        ENDS,
        ENDS.replace(":\n", " and (\n")
        + "                config.max_num_seqs != 7 or request.output_len == request.max_tokens\n"
        "            ):\n",
    ),
    "while a request prefills, decoding requests are considered before paused ones": (
        "SPY-P01",
        {"step_keeps_fair_order_1_1", "step_keeps_fair_order_1_1_long"},
        "spyre/release_2_5_2.py",
        LISTS,
        "    if state.prefilling is not None:\n        return [*state.decoding, *state.paused]\n"
        f"{LISTS}",
    ),
    "of three requests, the one paused longest is not the first, if long outputs go first": (
        "SPY-P01",
        {"step_keeps_fair_order_1_2_long"},
        "spyre/release_2_5_2.py",
        SORTS,
        "    if config.long_output_priority and len(requests) > 2:\n        return requests\n"
        f"{SORTS}",
    ),
    "while another request waits, no request resumes": (
        "SPY-R51",
        {"step_keeps_fair_order_1_1"},
        "spyre/release_2_5_2.py",
        PAUSES,
        f"    if not (state.paused and state.waiting and state.running):\n    {PAUSES}",
    ),
    "the wrong outputs go first": (
        "SPY-R51",
        {"step_keeps_fair_order_2_0", "step_keeps_fair_order_2_0_long"},
        "spyre/release_2_5_2.py",
        OUTPUTS,
        OUTPUTS.replace("=config", "=not config"),
    ),
    "after the first request that does not fit, none decodes": (
        "SPY-R51",
        {"step_keeps_fair_order_3_0"},
        "spyre/release_2_5_2.py",
        FITS,
        FITS.replace("if", "if not paused and"),
    ),
    "with a bounded pool, the request paused longest comes last": (
        "SPY-R51",
        {"step_keeps_fair_order_1_1"},
        "spyre/release_2_5_2.py",
        SORTS,
        SORTS.replace("True", "config.num_blocks is None"),
    ),
    "with two waiting, one starts although another is paused": (
        "SPY-P01",
        {"code_starts_newcomer_behind_paused_1_1"},
        "spyre/documented.py",
        MAY,
        f"    if state.paused and len(state.waiting) > 1:\n        return True\n{MAY}",
    ),
    "a prefill step forgets how long requests have been paused": (
        "SPY-P01",
        {"step_keeps_fair_order_0_1"},
        "spyre/forward.py",
        COMPUTED,
        f"{COMPUTED}    after = after._replace(\n"
        "        paused=tuple(each._replace(paused_steps=0) for each in after.paused)\n    )\n",
    ),
    "the constraint is asked about the first of two requests only": (
        "SPY-R41",
        {"step_obeys_length_constraint"},
        "spyre/documented.py",
        ASKED,
        ASKED.replace("decoding,", "decoding[:1],"),
    ),
    "with two requests, the constraint is not told the tkv": (
        "SPY-R41",
        {"step_obeys_length_constraint"},
        "spyre/documented.py",
        ASKED,
        ASKED.replace("tkv,", "tkv if len(decoding) < 2 else 0,"),
    ),
    "with a bounded pool, the constraint is not asked": (
        "SPY-R41",
        {"step_obeys_length_constraint"},
        "spyre/documented.py",
        ASKED,
        ASKED.replace("if not", "if config.num_blocks is None and not"),
    ),
    "a decode step reports a token more": (
        "SPY-R41",
        {f"{WITHIN}_{name}" for name in ("sound", "2.1.2", "2.5.2")},
        "spyre/forward.py",
        DECODED_TKV,
        DECODED_TKV.replace("lengths", "[length + 1 for length in lengths]"),
    ),
    "a chunk reports the padded prompt": (
        "SPY-R41",
        {f"{WITHIN}_sound"},
        "spyre/documented.py",
        CHUNK_TKV,
        "    padded = chunk_count(request.prompt, config.chunk_size) * config.chunk_size\n"
        + CHUNK_TKV.replace(
            "batch_tkv(config, running)", "max(batch_tkv(config, running), padded)"
        ),
    ),
    "a last chunk reports a block more beside the tkv of a batch": (
        "SPY-R41",
        {f"{WITHIN}_2.1.2"},
        "spyre/release_2_1_2.py",
        LAST_TKV,
        LAST_TKV.replace("+ 1", "+ (block_size if tkv > prompt else 0) + 1"),
    ),
    "with aborts to report, the tkv of a step is a block more": (
        "SPY-R41",
        {"decision_keeps_tkv_2.5.2"},
        "spyre/scheduler.py",
        SHOWN_TKV,
        SHOWN_TKV.replace("or None", "+ config.block_size * bool(finished) or None"),
    ),
    "a request arrives with its prompt rounded up": (
        "SPY-R41",
        {f"arrival_waits_uncomputed_1_{name}" for name in ("sound", "2.1.2", "2.5.2")},
        "spyre/model.py",
        JOINS,
        "        new = Sequence.of(request)\n        size = self.config.block_size\n"
        "        prompt = blocks_for(new.prompt, size) * size\n"
        + JOINS.replace("Sequence.of(request)", "new._replace(prompt=prompt)"),
    ),
    "the check on arrival of 2.5.2 ignores max_model_len": (
        "SPY-R41",
        {"door_refuses_what_lemmas_assume"},
        "spyre/model.py",
        DOOR,
        DOOR.replace(":\n", ' and "paused" not in self.revision.shows:\n'),
    ),
    "the pool has a block too many": (
        "SPY-R50",
        {f"run_begins_empty_{name}" for name in ("sound", "2.5.2")},
        "systems.py",
        BEGINS,
        BEGINS.replace("num_blocks", "num_blocks and self.config.num_blocks + 1"),
    ),
    "the line is rotated when a request ends": (
        "SPY-R53",
        {"one_request_prefills_1"},
        "spyre/scheduler.py",
        EMITTED,
        EMITTED + "    if leaving:\n"
        "        waiting = (*state.waiting[1:], *state.waiting[:1])\n"
        "        state = state._replace(waiting=waiting)\n",
    ),
    "a step rotates a line of three": (
        "SPY-R53",
        {"one_request_prefills_0"},
        "spyre/model.py",
        STEPS,
        "        line = state.waiting\n        if len([*line]) > 1:\n"
        "            state = state._replace(waiting=(*line[1:], *line[:1]))\n" + STEPS,
    ),
    "of two requests that end together, one stays": (
        "SPY-R53",
        {"decode_step_brings_end_nearer"},
        "spyre/scheduler.py",
        ENDS,
        ENDS.replace(":\n", " and not leaving:\n"),
    ),
    "a paused request with a hit does not age": (
        "SPY-R51",
        {"step_keeps_fair_order_1_1"},
        "spyre/release_2_5_2.py",
        AGES,
        AGES.replace("+ 1", "+ (0 if request.prefix_hit > 0 else 1)"),
    ),
    "a step forgets for how long requests have been paused": (
        "SPY-R51",
        {"step_keeps_fair_order_0_2"},
        "spyre/scheduler.py",
        SERVES,
        "    paused = tuple([request._replace(paused_steps=1) for request in state.paused])\n"
        "    state = state._replace(paused=paused)\n" + SERVES,
    ),
    "with few slots, promises are not asked for": (
        "SPY-R50",
        {"step_keeps_promises_covered_admits_0_sound"},
        "spyre/blocks.py",
        NO_POOL,
        NO_POOL.replace("is None", "is None or config.max_num_seqs < 8"),
    ),
    "a later request starts if the pool has no room for the first": (
        "SPY-R50",
        {"shortage_of_blocks_ends_search_2.5.2"},
        "spyre/release_2_5_2.py",
        SHORT,
        SHORT.replace("return None", "continue"),
    ),
    "only the promise to the last request counts": (
        "SPY-R50",
        {"code_adds_each_promise_sound", "code_adds_each_promise_2.5.2"},
        "spyre/blocks.py",
        PROMISES,
        PROMISES.replace("promised +=", "promised = state.lost_blocks +"),
    ),
    "two requests that end together both give back a block that they share": (
        "SPY-R50",
        {"requests_that_end_together_keep_promises_covered_sound"},
        "spyre/scheduler.py",
        LEAVES,
        "    gone = {request.id for request in leaving}\n"
        "    kept = tuple(each for each in state.running if each.id not in gone)\n"
        "    state = state._replace(running=kept)\n" + LEAVES,
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
    "what was promised to a request that is aborted in its prefill stays promised": (
        "SPY-R50",
        {"code_keeps_promises_covered_at_abort_sound"},
        "spyre/blocks.py",
        LOSES,
        "    return 0 if request.prefilled else 9 * blocks_at_end(config, request)\n",
    ),
    "what was promised to a request that is aborted alone stays promised": (
        "SPY-R50",
        {f"code_keeps_promises_covered_at_abort_{name}" for name in ("sound", "2.5.2")},
        "spyre/scheduler.py",
        WITHDRAWS,
        f"{WITHDRAWS}        lost += 9 * (not after.admitted)\n",
    ),
    "a first chunk that is not the last takes blocks beyond the prompt": (
        "SPY-R50",
        {
            f"step_keeps_promises_covered_{kind}_sound"
            for kind in ("admits_0", "admits_shared", "admits_idle")
        },
        "spyre/documented.py",
        COUNTS,
        "    if request.computed == request.prefix_hit and end < request.prompt:\n"
        f"        return end, end + 8 * config.block_size\n{COUNTS}",
    ),
    "an abort within a step gives a promise away": (
        "SPY-R50",
        {"code_keeps_promises_covered_at_abort_sound"},
        "spyre/blocks.py",
        LOSES,
        "    return -1 if inside else 0\n",
    ),
    "a hit loses the free blocks with the same content": (
        "SPY-R50",
        {f"{COVERED}_admits_idle_sound"},
        "pool.py",
        TOUCHES,
        "    names = {content for block, content in pool.tail if block in reused}\n"
        + TOUCHES.replace("if entry", "if entry[1] not in names and entry"),
    ),
    "handing out a cached block loses the free blocks with the same content": (
        "SPY-R50",
        {f"{COVERED}_{kind}_sound" for kind in ("admits_0", "prefills", "decodes")},
        "pool.py",
        EVICTS,
        f"    gone = {{content for _, content in evicted}} - {{None}}\n{EVICTS}"
        "    tail = tuple([entry for entry in tail if entry[1] not in gone])\n",
    ),
    "of blocks with the same content, only one is free after an abort": (
        "SPY-R50",
        {f"code_keeps_promises_covered_at_abort_{name}" for name in ("sound", "2.5.2")},
        "pool.py",
        GIVES,
        "    named = tuple({entry[1]: entry for entry in pool.tail + named}.values())\n"
        + GIVES.replace("pool.tail + ", ""),
    ),
    "the promise to a request that has started is smaller by its hit": (
        "SPY-R50",
        {f"{COVERED}_admits_0_sound", "code_adds_each_promise_sound"},
        "spyre/blocks.py",
        NEEDS,
        NEEDS.replace("size)", "size) - request.prefix_hit // config.block_size"),
    ),
    "the check counts a block that the start does not find": (
        "SPY-R50",
        {f"{COVERED}_admits_shared_{name}" for name in ("sound", "2.5.2")},
        "spyre/blocks.py",
        SHARES,
        SHARES.replace(
            "prefix_hit(config, state, newcomer)",
            "prefix_hit(config, state, newcomer._replace(prompt=newcomer.prompt + 1))",
        ),
    ),
    "a request loses a block when it is published": (
        "SPY-R50",
        {f"{COVERED}_decodes_sound"},
        "allocator.py",
        FILLS,
        FILLS.replace("=full", "=full, blocks=sequence.blocks[:full]"),
    ),
    "with a bounded pool, a chunk is one block": (
        "SPY-R18",
        {"step_runs_planned_chunk_sound"},
        "spyre/forward.py",
        CHUNK,
        f"{CHUNK}    if config.num_blocks is not None:\n        chunk = block\n",
    ),
    "a chunk cuts the prompt": (
        "SPY-R18",
        {"step_runs_planned_chunk_sound"},
        "spyre/forward.py",
        COUNTED,
        f"{COUNTED}    if counted < request.prompt:\n"
        "        computed = replace(computed, prompt=request.prompt - 1)\n",
    ),
    "in a step that reports an abort, a chunk is one block": (
        "SPY-R18",
        {"step_runs_planned_chunk_sound"},
        "spyre/forward.py",
        PLANS,
        f"{PLANS}    if state.aborted:\n{SHORTER}",
    ),
    "beside a decoding request, a chunk is one block": (
        "SPY-R18",
        {"step_runs_planned_chunk_sound"},
        "spyre/forward.py",
        PLANS,
        f"{PLANS}    if state.decoding:\n{SHORTER}",
    ),
    "a decode step takes a computed token of a prompt back": (
        "SPY-R54",
        {"step_runs_planned_chunk_sound"},
        "spyre/forward.py",
        PREFILLS,
        PREFILLS.replace("request", "replace(request, computed=max(request.computed - 1, 1))"),
    ),
    "an abort within a step counts a token of a prompt": (
        "SPY-R54",
        {"step_runs_planned_chunk_sound"},
        "spyre/scheduler.py",
        EMITTED,
        "    if state.aborted:\n        running = [\n"
        "            each if each.prefilled else replace(each, computed=each.computed + 1)\n"
        f"            for each in running\n        ]\n{EMITTED}",
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


@pytest.mark.parametrize("lemma", ["step_keeps_fair_order_1_1", "step_keeps_fair_order_2_0"])
def test_a_fault_for_one_block_size_makes_the_lemma_fail_for_this_size(lemma):
    fault = f"{LISTS}    if config.block_size == 48:\n        return requests[::-1]\n"
    with imported_anew(changed([("spyre/release_2_5_2.py", LISTS, fault)])):
        proofs = importlib.import_module("schedproof.solver.spyre.proofs_by_rule")
        discharge = importlib.import_module("schedproof.solver.smt.obligation").discharge
        statuses = [
            each.status
            for block in (48, 64)
            for each in discharge(
                [made for made in proofs.PROOFS["SPY-P01"].obligations(block) if made.name == lemma]
            )
        ]
    assert statuses == ["refuted", "proven"]
