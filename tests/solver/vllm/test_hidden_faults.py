"""A fault that shows only with certain requests or policies makes a lemma of its rule fail."""

import importlib

import pytest

from schedproof.tests.mutants.faults import MODEL, Edit
from schedproof.tests.mutants.planting import imported_anew

SCHEDULER, CACHE, POOL = "vllm/scheduler.py", "vllm/kv_cache.py", "pool.py"
QUEUES, MODEL_OF, COMPLETION = "vllm/queue.py", "vllm/model.py", "vllm/completion.py"


def status_of(rule, name, edit):
    """Return the status of a lemma of the rule after the edit."""
    text = edit.apply((MODEL / edit.file).read_text("utf-8"))
    with imported_anew({edit.file: text}):
        proofs = importlib.import_module("schedproof.solver.vllm.proofs_by_rule").PROOFS
        obligation = importlib.import_module("schedproof.solver.smt.obligation")
        [lemma] = [item for item in proofs[rule].obligations(None) if item.name == name]
        [found] = obligation.discharge([lemma])
        return found.status


def is_refuted(rule, name, edit):
    return status_of(rule, name, edit) == "refuted"


def before(line, fault, file=SCHEDULER):
    return Edit(file, line, fault + line)


def after(line, fault, file=SCHEDULER):
    return Edit(file, line, line + fault)


CLAMPS = "        tokens, fit = clamp(config, behind(config, sequence), plan.budget), None\n"
CLAMPS_FIRST = "        tokens, fit = clamp(config, uncomputed, plan.budget), None\n"
ADVANCES = "    place = 0\n    while place < len(plan.running) and plan.budget > 0:\n"
ADMITS = "    beside, slots = plan, config.slots\n"
QUEUE = "    for sequence in (*plan.parked, *plan.waiting):\n        if plan.budget <= 0"
WHOLE_BLOCKS = (
    "    for number in range(1, (tokens - 1) // block_size + 1):\n"
    "        holders = pool.cached.get(prefix(content, number * block_size + beyond))\n"
)
LOOKS_UP = "    hit = cached_blocks(pool, sequence.known, sequence.num_tokens, config.block_size"

ADMITTED = "admit(config, plan.pool, sequence, hit, loaded + tokens"
SHARES = {
    "a newcomer forgets its hit": (
        "step_keeps_budget_fcfs_0_1",
        Edit(SCHEDULER, ADMITTED, ADMITTED.replace("hit, ", "(), ")),
    ),
    "blocks for a token less": (
        "step_keeps_budget_fcfs_0_1",
        Edit(SCHEDULER, ADMITTED, f"{ADMITTED} - (tokens > 1)"),
    ),
    "a running request computes a token less": (
        "step_keeps_budget_fcfs_1_0",
        after(CLAMPS, "        if tokens > 1:\n            tokens -= 1\n"),
    ),
    "a newcomer computes a token less": (
        "step_keeps_budget_fcfs_0_1",
        after(
            CLAMPS_FIRST,
            "        if config.enable_chunked_prefill and tokens > 1:\n            tokens -= 1\n",
        ),
    ),
    "only a part of the budget is passed on": (
        "step_keeps_budget_fcfs_1_0",
        Edit(SCHEDULER, CLAMPS, CLAMPS.replace("plan.budget", "(plan.budget + 1) // 2")),
    ),
    "a lone request computes a token less by priority": (
        "step_keeps_budget_priority_1_0",
        after(
            CLAMPS,
            '        if tokens > 1 and len(plan.running) == 1 and config.policy == "priority":\n'
            "            tokens -= 1\n",
        ),
    ),
}


@pytest.mark.parametrize("fault", SHARES)
def test_a_share_that_is_not_the_least_of_its_bounds_is_refuted(fault):
    assert is_refuted("V1-R04", *SHARES[fault])


@pytest.mark.parametrize(
    "fault",
    [
        Edit(
            POOL,
            WHOLE_BLOCKS,
            WHOLE_BLOCKS.replace("- 1)", "- (tokens <= 2 * block_size + 1))"),
        ),
        after(
            WHOLE_BLOCKS,
            "        if number > 2:\n            hit.append(holders[0])\n",
            POOL,
        ),
        after(
            "        hit.append(holders[0])\n",
            "        if number == 20:\n            break\n",
            POOL,
        ),
        Edit(CACHE, LOOKS_UP, LOOKS_UP.replace("num_tokens", "num_tokens + 1")),
    ],
    ids=["last token", "twice after two blocks", "no more than 20", "a token more"],
)
def test_a_wrong_hit_of_a_long_prompt_is_refuted(fault):
    assert is_refuted("V1CP-R28", "hit_looks_up_each_block", fault)


NONE_RUNS = "not plan.running and not plan.preempted"
LONE = before(ADVANCES, "    if len(plan.running) == 1:\n        return plan\n")
DECISIONS = {
    "two waiting requests are never admitted": (
        "code_admits_first_in_line_2",
        before(ADMITS, f"    if len(plan.waiting) == 2 and {NONE_RUNS}:\n        return plan\n"),
    ),
    "three waiting requests are never admitted": (
        "decision_keeps_first_fcfs_0_3",
        before(ADMITS, f"    if len(plan.waiting) > 2 and {NONE_RUNS}:\n        return plan\n"),
    ),
    "nothing is admitted by priority": (
        "code_admits_first_in_line_1",
        before(
            ADMITS, f'    if config.policy == "priority" and {NONE_RUNS}:\n        return plan\n'
        ),
    ),
    "nothing with two cached blocks is admitted": (
        "code_admits_first_in_line_1",
        after(
            "kv_cache.found(config, plan.pool, sequence, bool(plan.running))\n",
            "        if len(hit) == 2:\n            return plan\n",
        ),
    ),
    "a lone request never computes": ("decision_keeps_first_fcfs_1_0", LONE),
    "the first of two computes nothing by priority": (
        "decision_keeps_first_priority_2_0",
        Edit(
            SCHEDULER,
            ADVANCES,
            ADVANCES.replace(
                "= 0\n", '= int(config.policy == "priority" and len(plan.running) > 1)\n'
            ),
        ),
    ),
    "the watermark is never applied": (
        "decision_keeps_first_fcfs_1_1",
        Edit(SCHEDULER, "loaded + tokens, bool(plan.running))", "loaded + tokens, False)"),
    ),
    "all requests behind are preempted at once": (
        "decision_keeps_first_fcfs_3_0",
        before(
            "            if victim is sequence:\n",
            "            while len(plan.running) > place + 1:\n"
            "                plan = preempt(config, plan, plan.running[-1])\n",
        ),
    ),
    "the last in line is admitted first": (
        "decision_keeps_first_fcfs_1_2",
        Edit(SCHEDULER, QUEUE, QUEUE.replace("*plan.waiting", "*plan.waiting[::-1]")),
    ),
}


@pytest.mark.parametrize("fault", DECISIONS)
def test_a_decision_that_keeps_requests_out_is_refuted(fault):
    assert is_refuted("V1CP-R12", *DECISIONS[fault])


@pytest.mark.parametrize(
    ("lemma", "fault"),
    [
        (
            "code_admits_first_in_line_1",
            before(ADMITS, "    if not plan.running:\n        return plan\n"),
        ),
        ("decision_keeps_first_fcfs_1_0", LONE),
    ],
    ids=["nothing is admitted", "a lone request never computes"],
)
def test_a_scheduler_that_never_asks_for_blocks_is_refuted(lemma, fault):
    assert is_refuted("V1CP-R22", lemma, fault)


BEHIND = "config.drafts else sequence.num_uncomputed_tokens\n"


@pytest.mark.parametrize(
    ("more", "lemma"),
    [
        ("(sequence.output_len < sequence.max_tokens)", "step_keeps_budget_fcfs_1_0"),
        ("(config.num_blocks is not None)", "step_keeps_budget_fcfs_1_0"),
        ("(sequence.arrival == 7)", "step_keeps_budget_fcfs_1_1"),
        ("(config.max_model_len == 4096)", "step_keeps_budget_priority_1_0"),
        ("(not config.enable_prefix_caching)", "completion_leaves_next_token_fcfs_1_0"),
    ],
)
def test_a_token_too_many_of_some_requests_or_configurations_is_refuted(more, lemma):
    adds_more = BEHIND.replace("\n", f" + {more}\n")
    assert is_refuted("V1-R04", lemma, Edit(SCHEDULER, BEHIND, adds_more))


BUDGET = "config.max_num_batched_tokens, {}, ()),"


@pytest.mark.parametrize(
    ("lemma", "fault"),
    [
        (
            "step_keeps_budget_fcfs_1_0",
            Edit(QUEUES, BUDGET, f"(1 + bool(state.aborted)) * {BUDGET}"),
        ),
        (
            "completion_leaves_next_token_fcfs_1_0",
            before(
                "        if self.config.has_grammars and self.config.depth > 2:\n",
                "        plan.scheduled.update({name: 2 * n for name, n in plan.scheduled.items()} "
                "if abort_inside else {})\n",
                MODEL_OF,
            ),
        ),
    ],
    ids=["an abort is reported", "a request is aborted within the step"],
)
def test_a_step_beyond_its_budget_beside_an_abort_is_refuted(lemma, fault):
    assert is_refuted("V1-R04", lemma, fault)


@pytest.mark.parametrize(
    "fault",
    [
        Edit(SCHEDULER, BEHIND, BEHIND.replace("\n", " + (len(sequence.blocks) > 1)\n")),
        Edit(QUEUES, BUDGET, f"(1 + len(state.aborted)) * {BUDGET}"),
    ],
    ids=["the number of blocks", "the number of aborts"],
)
def test_code_that_reads_what_the_lemmas_do_not_model_is_not_proven(fault):
    assert status_of("V1-R04", "step_keeps_budget_fcfs_1_0", fault) in ("refuted", "unknown")


ARRIVES = "    waiting = queue.enqueued(config, state.waiting, newcomer)\n"
REPORTS = "        aborted=(*state.aborted, request_id),\n"


@pytest.mark.parametrize(
    ("lemma", "fault"),
    [
        (
            "arrival_joins_queue_fcfs_0_2",
            Edit(SCHEDULER, ARRIVES, "    waiting = (newcomer, *state.waiting)\n"),
        ),
        (
            "arrival_joins_queue_priority_0_2",
            Edit(
                QUEUES,
                "        return tuple(sorted((*waiting, newcomer), key=importance))\n",
                "        return tuple(sorted((newcomer, *waiting), key=lambda s: s.priority))\n",
            ),
        ),
        (
            "arrival_joins_queue_fcfs_0_0",
            Edit(SCHEDULER, "arrived=state.arrived + 1)", "arrived=state.arrived)"),
        ),
        (
            "abort_removes_only_fcfs_1_1",
            after(REPORTS, "        arrived=state.arrived - bool(state.waiting),\n"),
        ),
        (
            "abort_removes_only_priority_0_2",
            Edit(SCHEDULER, REPORTS, REPORTS.replace("*state.aborted, request_id", "request_id,")),
        ),
        (
            "completion_leaves_next_token_fcfs_2_0",
            Edit(
                COMPLETION,
                "    running, waiting = changed(state.running, known), ",
                "    running, waiting = changed(state.running, known)[::-1], ",
            ),
        ),
    ],
    ids=[
        *("the newcomer first", "equal priorities", "the same number twice"),
        *("a number is given again", "one report is lost", "the order is reversed"),
    ],
)
def test_an_arrival_an_abort_or_a_completion_that_changes_the_queues_is_refuted(lemma, fault):
    assert is_refuted("V1CP-R12", lemma, fault)


def test_a_threshold_that_newcomers_ignore_is_not_proven():
    ignores = CLAMPS_FIRST.replace(
        "clamp(config",
        'clamp(__import__("msgspec").structs.replace(config, long_prefill_token_threshold=0)',
    )
    fault = Edit(SCHEDULER, CLAMPS_FIRST, ignores)
    assert status_of("V1-R04", "step_keeps_budget_fcfs_0_1", fault) == "unknown"


GIVES_BACK = "    return pool._replace(head=nameless + pool.head, tail=pool.tail + named)\n"
LEAVES = "            state = (connector.send_or_free if config.loads else free)"


@pytest.mark.parametrize(
    ("lemma", "fault"),
    [
        (
            "blocks_given_back_are_free_1",
            Edit(
                POOL,
                GIVES_BACK,
                "    tail = tuple({entry[1] or entry[0]: entry for entry in pool.tail + named}"
                ".values())\n" + GIVES_BACK.replace("pool.tail + named", "tail"),
            ),
        ),
        (
            "blocks_given_back_are_free_3",
            before(
                "    return pool, allocator.freed(cut, held, config.block_size)\n",
                "    covered = -(-cut.computed // config.block_size)\n"
                "    cut = cut._replace(blocks=cut.blocks[:covered])\n",
                CACHE,
            ),
        ),
        (
            "admission_decides_as_in_lemmas_1_1",
            after(
                "    tail = tuple([entry for entry in pool.tail if entry[0] not in reused])\n",
                "    names = {name for block, name in pool.tail if block in reused} - {None}\n"
                "    tail = tuple([entry for entry in tail if entry[1] not in names])\n",
                POOL,
            ),
        ),
        (
            "admission_decides_as_in_lemmas_0_0",
            after(
                "    fresh, tail = fresh + never_used, tail[len(evicted) :]\n",
                "    names_out = {content for _, content in evicted} - {None}\n"
                "    tail = tuple([entry for entry in tail if entry[1] not in names_out])\n",
                POOL,
            ),
        ),
        (
            "completion_leaves_next_token_fcfs_2_0",
            before(
                LEAVES,
                '            if finished[sequence.id] == "eos" and len(flight) > 1:\n'
                "                continue\n",
                COMPLETION,
            ),
        ),
        (
            "abort_removes_only_fcfs_1_1",
            before(
                "    return (connector.abort if config.loads else free)(config, state, sequence)\n",
                "    if not sequence.decodes:\n        return state\n",
            ),
        ),
    ],
    ids=[
        *("one block for each content", "blocks without tokens"),
        *("copies of a hit are lost", "copies of what is evicted are lost"),
        *("an early end", "an abort in the prompt"),
    ],
)
def test_a_pool_that_loses_blocks_is_not_proven(lemma, fault):
    assert status_of("V1CP-R19", lemma, fault) != "proven"


FREES = "            state = (connector.send_or_free if config.loads else free)(config, state"
REWOUND = "    lost = victim.rewound()._replace(drafted"
MOVES_UP = "            place -= plan.running.index(victim) < place\n"


@pytest.mark.parametrize(
    ("rule", "lemma", "fault"),
    [
        ("V1-R04", "step_keeps_budget_priority_2_0", Edit(SCHEDULER, MOVES_UP, "")),
        (
            "V1-R04",
            "step_keeps_budget_fcfs_2_0",
            Edit(
                SCHEDULER, REWOUND, REWOUND.replace("drafted", "computed=victim.computed, drafted")
            ),
        ),
        (
            "V1-R04",
            "step_keeps_budget_fcfs_3_0",
            after(
                "            plan = preempt(config, plan, victim)\n",
                "            if place:\n                return plan\n",
            ),
        ),
        (
            "V1CP-R12",
            "decision_keeps_first_priority_2_0",
            Edit(QUEUES, "max(running, key=importance)", "max(running, key=lambda s: s.priority)"),
        ),
        (
            "V1CP-R19",
            "completion_leaves_next_token_fcfs_2_0",
            before(
                FREES,
                "            left = (*state.leaving, *known.values())\n"
                "            pool = free(config, state._replace(leaving=left), sequence).pool\n"
                "            state = state._replace(pool=pool)\n"
                "            continue\n",
                COMPLETION,
            ),
        ),
        (
            "V1CP-R32",
            "completion_leaves_next_token_fcfs_2_0",
            Edit(
                COMPLETION,
                "        state = abort(config, state, request_id)\n",
                "        state = abort(config, state, request_id)._replace(pool=state.pool)\n",
            ),
        ),
        (
            "V1CP-R32",
            "blocks_given_back_are_free_2",
            Edit(
                "allocator.py",
                "        if block not in held\n",
                "        if block not in held and number < max(sequence.published, 1)\n",
            ),
        ),
        (
            "V1CP-R32",
            "step_keeps_budget_fcfs_1_1",
            Edit(SCHEDULER, "len(plan.running) >= slots", "len(plan.running) > slots"),
        ),
        (
            "V1CP-R12",
            "completion_leaves_next_token_fcfs_0_2",
            before(
                "        if self.config.has_sessions:\n            return sessions.step",
                "        state = state._replace(waiting=state.waiting[1:] + state.waiting[:1])\n",
                MODEL_OF,
            ),
        ),
        (
            "V1CP-R12",
            "decision_keeps_first_fcfs_2_0",
            Edit(SCHEDULER, REWOUND, REWOUND.replace("drafted", "blocks=victim.blocks, drafted")),
        ),
        (
            "V1CP-R32",
            "run_begins_empty",
            Edit(
                "systems.py",
                "pool=Pool(self.config.num_blocks)",
                "pool=Pool(self.config.num_blocks and self.config.num_blocks - 1)",
            ),
        ),
        (
            "V1CP-R32",
            "growth_decides_as_in_lemmas_1",
            Edit(
                CACHE,
                "    if missing > 0 and not fits(pool, missing):\n",
                "    if missing > 0 and not fits(pool, missing + config.enable_prefix_caching):\n",
            ),
        ),
        (
            "V1CP-R19",
            "admission_decides_as_in_lemmas_1_1",
            Edit(
                "allocator.py",
                "    return sequence._replace(published=full), pool\n",
                "    pool = pool._replace(fresh=pool.fresh + 1)\n"
                "    return sequence._replace(published=full), pool\n",
            ),
        ),
    ],
    ids=[
        *("a request runs twice", "a victim keeps what it computed", "a victim ends the round"),
        *("of equals, the first is a victim", "blocks of two that end together"),
        *("an abort within a step", "a block that is not full", "a slot too many"),
        *("a line that turns", "a victim with blocks", "a small pool"),
        *("a spare block with prefix caching", "a block is lost when one is published"),
    ],
)
def test_a_fault_in_code_that_other_lemmas_rely_on_is_refuted(rule, lemma, fault):
    assert is_refuted(rule, lemma, fault)
