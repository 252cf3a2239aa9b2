"""A fault beside the request that a lemma is about makes a lemma of its rule fail."""

import pytest

from schedproof.tests.mutants.faults import Edit
from schedproof.tests.solver.vllm.test_hidden_faults import after, status_of

SCHEDULER, CACHE, COMPLETION = "vllm/scheduler.py", "vllm/kv_cache.py", "vllm/completion.py"
TOLD = "        after = after._replace(told=told)\n"
UNCOMPUTED = (
    "        uncomputed = sequence.num_uncomputed_tokens - len(hit) * config.block_size - loaded\n"
)
LACKS = "    lacks = blocks_for(covered, config.block_size) - len(hit) + unheld(pool, hit)\n"
CUT = "    cut = sequence._replace(published=min(filled, sequence.published))\n"
KNOWN = "    running, waiting = changed(state.running, known), changed(state.waiting, known)\n"
COMPUTED = (
    "            sequence._replace(computed=sequence.computed + plan.scheduled.get(sequence.id, 0))"
)
FAULTS = {
    "the message to the worker forgets a waiting request": (
        "V1CP-R12",
        "message_changes_only_known_requests",
        after(
            TOLD,
            "        if len(after.waiting) > 2:\n"
            "            after = after._replace(waiting=after.waiting[:2])\n",
            "vllm/worker.py",
        ),
    ),
    "a message after a preemption counts a token": (
        "V1-I2",
        "message_changes_only_known_requests",
        after(
            TOLD,
            "        if plan.preempted and after.running:\n"
            "            first, *others = after.running\n"
            "            first = first._replace(computed=first.computed + 1)\n"
            "            after = after._replace(running=(first, *others))\n",
            "vllm/worker.py",
        ),
    ),
    "only the longest segment of a prompt counts": (
        "V1-I2",
        "arrival_joins_queue_fcfs_0_0",
        Edit(
            "sequence.py",
            "            request.prompt_len,\n",
            "            max(length for _, length in request.prompt),\n",
        ),
    ),
    "a request without output_len generates a token more": (
        "V1CP-R19",
        "arrival_joins_queue_fcfs_0_0",
        Edit(
            "sequence.py",
            "            request.tokens_to_emit,\n",
            "            request.tokens_to_emit + (request.output_len is None),\n",
        ),
    ),
    "the check on arrival counts only the first segment": (
        "V1CP-R19",
        "door_refuses_what_lemmas_assume",
        Edit(
            "scenario.py",
            "            return self.prompt_len, self.max_tokens\n",
            "            return self.prompt[0][1], self.max_tokens\n",
        ),
    ),
    "a hit of three blocks counts as four": (
        "V1-I2",
        "step_keeps_budget_fcfs_0_1",
        after(
            UNCOMPUTED,
            "        if len(hit) > 2 and uncomputed > config.block_size:\n"
            "            uncomputed -= config.block_size\n",
        ),
    ),
    "with an unbounded pool, prompts may exceed the budget": (
        "V1CP-R19",
        "door_refuses_what_lemmas_assume",
        Edit(
            "vllm/model.py",
            "        if not config.enable_chunked_prefill and longest",
            "        bounded = config.num_blocks is not None\n"
            "        if bounded and not config.enable_chunked_prefill and longest",
        ),
    ),
    "an unbounded pool has room for three blocks": (
        "V1CP-R19",
        "code_admits_first_in_line_1",
        Edit(
            "pool.py",
            "    return free is None or blocks <= free\n",
            "    return blocks <= (3 if free is None else free)\n",
        ),
    ),
    "three hit blocks that no request holds count as four": (
        "V1CP-R19",
        "missing_blocks_follow_hit",
        after(LACKS, "    lacks += unheld(pool, hit) > 2\n", CACHE),
    ),
    "a request that ends early keeps its last block": (
        "V1CP-R19",
        "blocks_given_back_are_free_2",
        after(
            CUT,
            "    if sequence.output_len < sequence.max_tokens:\n"
            "        cut = cut._replace(blocks=cut.blocks[:-1])\n",
            CACHE,
        ),
    ),
    "a request keeps the second block of its hit": (
        "V1CP-R12",
        "blocks_given_back_are_free_3",
        after(
            CUT,
            "    hit = sequence.prefix_hit // config.block_size\n"
            "    held |= set(sequence.blocks[1 : max(hit, 1)])\n",
            CACHE,
        ),
    ),
    "three that end together pause the scheduler": (
        "V1CP-R12",
        "completion_leaves_next_token_fcfs_3_0",
        after(
            KNOWN,
            '    if len(emitted) > 2:\n        state = state._replace(pause="pause_new")\n',
            COMPLETION,
        ),
    ),
    "an early end while an abort is reported pauses the scheduler": (
        "V1CP-R12",
        "completion_leaves_next_token_fcfs_1_0",
        after(
            KNOWN,
            '    if "eos" in finished.values() and "aborted" in finished.values():\n'
            '        state = state._replace(pause="pause_new")\n',
            COMPLETION,
        ),
    ),
    "after an abort within a step, decisions stay in flight": (
        "V1CP-R12",
        "completion_leaves_next_token_fcfs_1_0",
        Edit(
            COMPLETION,
            "        state = state._replace(in_flight=())\n",
            "        state = state._replace(in_flight=state.in_flight if abort_inside else ())\n",
        ),
    ),
    "of three that run, one computes a token that is not scheduled": (
        "V1-I2",
        "completion_leaves_next_token_fcfs_3_0",
        Edit(
            COMPLETION,
            COMPUTED,
            COMPUTED.replace("plan.scheduled", "(len(plan.running) > 2) + plan.scheduled"),
        ),
    ),
}


@pytest.mark.parametrize(("rule", "lemma", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_makes_a_lemma_of_the_rule_fail(rule, lemma, fault):
    assert status_of(rule, lemma, fault) in ("refuted", "unknown")
