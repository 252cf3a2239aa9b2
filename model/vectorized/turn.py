"""One turn of every lane: one step of Spyre's scheduler, or a run of decode steps without events.

As `spyre.scheduler.step` without a prefix cache, a bounded pool and aborts. Requests come in order
of arrival, so that the first whose prompt is not computed is the one that prefills, or waits
longest. A turn reads its rows and overwrites them; it is run by NumPy as it is, or compiled by
Numba.
"""

from typing import NamedTuple

import numpy as np

from ..pool import blocks_for
from ..spyre.documented import left_padding_blocks
from .admission import satisfies_last_chunk
from .rows import Row, Rows, among, any_row, choose, in_last_block, rectangle, spread, within_block
from .rules import (
    AFTER_PREFILL,
    ARRIVAL,
    DECODE,
    END,
    IDLE,
    KIND,
    MAX_TOKENS,
    NOTHING,
    OVER,
    PEAK,
    PREFILL,
    PROMPT,
    RUNNER_TKV,
    SHOWN,
    STEP,
    STEPS,
    TKV,
    Rules,
)


class Batch(NamedTuple):
    """The requests that decode: how many, the longest, tokens in the fullest last block, now and
    beyond whole blocks; and decode steps until a request ends or has filled a block."""

    members: Row
    longest: Row
    filled: Row
    beyond: Row
    quiet: Row


class Candidate(NamedTuple):
    """The first whose prompt is not computed: its number, -1 where there is none, what it asks
    for, tokens computed, and whether it has arrived."""

    number: Row
    prompt: Row
    max_tokens: Row
    computed: Row
    arrival: Row
    there: Row


def turn(
    rules: Rules, asked: Rows, computed: Rows, lane: Rows, projected: Rows, max_steps: int
) -> None:
    """Go on by one step, or by up to `max_steps` where nothing can happen but decoding.

    Args:
        rules: what is the same for all lanes.
        asked: what requests ask for, (field, request[, lane]), in order of arrival.
        computed: tokens computed of each request, (request[, lane]); changed.
        lane: what is remembered between steps and told of them, (field[, lane]); changed.
        projected: room for a row for each request.
        max_steps: 1: every step by itself.
    """
    batch = batch_of(asked, computed, rules.block_size, lane[STEP] * 0 + max_steps)
    one = candidate_of(asked, computed, lane[STEP])
    seated = (one.computed > 0) | (batch.members < rules.max_num_seqs)
    prefills = may_prefill(rules, asked, computed, lane, projected, batch, one, seated)
    decodes = np.logical_not(prefills) & (batch.members > 0)
    steps = lane[STEP] * 0 + 1
    if max_steps > 1:
        steps = choose(prefills, 1, until_event(lane, batch, one, seated, max_steps))
    steps = choose((batch.members == 0) & (one.number < 0), 0, steps)
    counted = after_chunk(rules, one)
    reached = tkv_after(rules, lane, batch, one, counted, prefills, decodes, steps)
    remember(rules, lane, batch, one, counted, prefills, decodes, steps, reached)
    for number in range(len(computed)):
        tokens = computed[number]
        member = (tokens >= asked[PROMPT][number]) & (tokens < asked[END][number])
        grown = choose(decodes & member, steps, 0)
        chunk = choose(prefills & (one.number == number), counted - one.computed, 0)
        computed[number] = tokens + grown + chunk


def batch_of(asked: Rows, computed: Rows, block_size: int, max_steps: Row) -> Batch:
    """The decode batch before the step."""
    none = max_steps * 0
    members, longest, beyond, quiet, full = none, none, none, max_steps, none > 0
    for number in range(len(computed)):
        tokens, end = computed[number], asked[END][number]
        decodes = (tokens >= asked[PROMPT][number]) & (tokens < end)
        if not any_row(decodes):
            continue
        within = within_block(tokens, block_size)
        members = members + decodes
        longest = np.maximum(longest, choose(decodes, tokens, 0))
        beyond = np.maximum(beyond, choose(decodes, within, 0))
        full = full | (decodes & (within == 0))
        left = np.minimum(end - tokens, block_size - within)
        quiet = choose(decodes, np.minimum(quiet, left), quiet)
    return Batch(members, longest, choose(full, block_size, beyond), beyond, quiet)


def candidate_of(asked: Rows, computed: Rows, step: Row) -> Candidate:
    """The request that would prefill in this step."""
    none = step * 0
    first, prompt, max_tokens, begun, arrival = none - 1, none, none, none, none
    for number in range(len(computed) - 1, -1, -1):  # the first is the last to be found
        tokens, own = computed[number], asked[PROMPT][number]
        found = tokens < own
        first = choose(found, number, first)
        prompt = choose(found, own, prompt)
        max_tokens = choose(found, asked[MAX_TOKENS][number], max_tokens)
        begun = choose(found, tokens, begun)
        arrival = choose(found, asked[ARRIVAL][number], arrival)
    there = (first >= 0) & (arrival <= step)
    return Candidate(first, prompt, max_tokens, begun, arrival, there)


def may_prefill(
    rules: Rules,
    asked: Rows,
    computed: Rows,
    lane: Rows,
    projected: Rows,
    batch: Batch,
    one: Candidate,
    seated: Row,
) -> Row:
    """The candidate's next chunk runs: `spyre.documented.may_prefill`."""
    alone = (batch.members == 0) & (one.computed == 0)
    may = one.there & seated
    if rules.interleave:
        may = may & ((lane[AFTER_PREFILL] == 0) | (batch.members == 0))
    questioned = one.prompt - one.computed <= rules.chunk_size
    if rules.checks_once and not rules.interleave:
        questioned = one.computed == 0
    prefills = one.there & (alone | (may & np.logical_not(questioned)))
    asks = may & questioned & np.logical_not(alone)
    if any_row(asks):
        tkv = lane[TKV]
        if not rules.stale_tkv:
            tkv = choose(
                batch.members > 0, rectangle(batch.longest, batch.filled, rules.block_size), 0
            )
        room = satisfies_last_chunk(
            rules,
            among(asked, asks),
            among(computed, asks),
            among(projected, asks),
            among(tkv, asks),
            among(batch.members, asks),
            among(batch.longest, asks),
            among(one.prompt, asks),
            among(one.max_tokens, asks),
        )
        prefills = prefills | (asks & spread(asks, room))
    return prefills


def until_event(lane: Rows, batch: Batch, one: Candidate, seated: Row, max_steps: int) -> Row:
    """Steps that are all alike, if this is no prefill: until a request ends, fills a block, or
    asks.

    A request refused for want of a slot is so until another ends; one refused for another reason
    is asked again in each step. Before the next arrival no request asks.
    """
    waits = choose(seated, 1, max_steps)
    none_there = choose(one.number < 0, max_steps, np.minimum(one.arrival - lane[STEP], max_steps))
    return np.minimum(batch.quiet, choose(one.there, waits, none_there))


def after_chunk(rules: Rules, one: Candidate) -> Row:
    """The candidate's tokens computed after its next chunk; the first loses the left padding."""
    block, chunk = rules.block_size, rules.chunk_size
    padding = left_padding_blocks(one.prompt, chunk, block) * block
    size = chunk - choose(one.computed == 0, padding, 0)
    return np.minimum(one.computed + size, one.prompt)


def tkv_after(
    rules: Rules,
    lane: Rows,
    batch: Batch,
    one: Candidate,
    counted: Row,
    prefills: Row,
    decodes: Row,
    steps: Row,
) -> Row:
    """The tkv that the model runner has reached after the turn: `spyre.forward.prefill_tkv`, or
    the end of the rectangle. An idle step does not change it."""
    block = rules.block_size
    before = lane[RUNNER_TKV]
    starts = (one.computed == 0) & (batch.members == 0)
    current = choose(starts, one.prompt, before)
    widest = np.maximum(blocks_for(one.prompt, block), blocks_for(current, block))
    last = np.maximum(within_block(one.prompt - 1, block), within_block(current - 1, block))
    joined = (widest - 1) * block + last + 1
    chunk = choose(counted >= one.prompt, joined, current)
    grown = rectangle(batch.longest + steps, batch.beyond + steps, block)
    return choose(prefills, chunk, choose(decodes, grown, before))


def remember(
    rules: Rules,
    lane: Rows,
    batch: Batch,
    one: Candidate,
    counted: Row,
    prefills: Row,
    decodes: Row,
    steps: Row,
    reached: Row,
) -> None:
    """What the next step goes by, and what is reported of this one."""
    idle = np.logical_not(prefills) & np.logical_not(decodes)
    shown = reached
    if not rules.stale_tkv:  # then a prefill shows the batch as it is
        joins = prefills & (counted >= one.prompt)
        last = choose(joins, in_last_block(one.prompt, rules.block_size), 0)
        longest = np.maximum(batch.longest, choose(joins, one.prompt, 0))
        there = rectangle(longest, np.maximum(batch.filled, last), rules.block_size)
        shown = choose(prefills, choose(longest > 0, there, 0), reached)
    lane[TKV] = choose(idle, 0, reached)
    lane[RUNNER_TKV] = reached
    lane[SHOWN] = choose(idle, 0, shown)
    lane[AFTER_PREFILL] = choose(prefills, 1, 0)
    kind = choose(prefills, PREFILL, choose(decodes, DECODE, NOTHING))
    lane[KIND] = choose(steps == 0, OVER, kind)
    lane[PEAK] = np.maximum(lane[PEAK], choose(decodes, batch.members * reached, 0))
    lane[IDLE] = lane[IDLE] + choose(idle & one.there, 1, 0)
    lane[STEPS] = steps
    lane[STEP] = lane[STEP] + steps
