"""Lanes: many independent runs of one configuration in parallel, as NumPy arrays
(`schedproof[fast]`).

Lanes do not support a prefix cache, a bounded pool or aborts. In all other respects they do exactly
what the reference model does. With R requests per lane and L lanes, `requested` has shape (4, R,
L), `computed` (R, L) and `lane` (FIELDS, L), all int64. A step of a hundred lanes takes about as
long as a step of one, so lanes pay off once there are a few dozen.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..pool import blocks_for
from ..scenario import Request, check_requests
from . import volumetric
from .config import read_config
from .documented import left_padding_blocks
from .own_formula import is_own
from .volumetric import Decoding, Formula, realigned

Array = NDArray[np.int64]
Row = Any  # a number or a truth value for each lane; shape (R, L) for a field of requests
AT_ONCE = 2048  # lanes; few enough for rows to stay in the processor's cache
# After two idle steps in a row, nothing changes any more. Such a lane is stuck, and ends.
MAX_IDLE = 100

# Rows of `requested`. END is the number of tokens that a request has computed when it gets its last
# token.
PROMPT, MAX_TOKENS, END, ARRIVAL = range(4)
REQUEST_ROWS = 4
# Rows of `lane`. TKV, RUNNER_TKV and AFTER_PREFILL are what the scheduler remembers. KIND and SHOWN
# (the observed tkv, 0 for none) describe the last step. PEAK (the largest batch x tkv) and IDLE
# (idle steps while a request waits or prefills) describe the whole run.
STEP, TKV, RUNNER_TKV, AFTER_PREFILL, KIND, SHOWN, PEAK, IDLE = range(8)
FIELDS = 8
OVER, PREFILL, DECODE, NOTHING = range(4)


class Choices(NamedTuple):
    """The choices of a revision.

    Attributes:
        formula: the formula of its volumetric check.
        stale_tkv: whether admission uses the tkv that the last forward pass reported.
        checks_once: whether, without interleaving, every constraint is checked at the first chunk
            only.
    """

    formula: Formula
    stale_tkv: bool = False
    checks_once: bool = False


REVISIONS = {
    "sound": Choices(volumetric.common_base),
    "documented": Choices(volumetric.document_realigned),
    "2.1.2": Choices(volumetric.release_2_1_2, stale_tkv=True, checks_once=True),
}


class Rules(NamedTuple):
    """The configuration and the choices that all lanes share."""

    block_size: int
    chunk_size: int
    max_num_seqs: int
    max_model_len: int
    max_batch_tkv: int
    interleave: bool
    choices: Choices


class LaneResult(NamedTuple):
    """The steps of each lane, the largest batch x tkv of a decode step, and the idle steps while a
    request waited or prefilled."""

    steps: Array
    peak: Array
    idle: Array


def read_rules(revision: str, values: Mapping[str, Any], formula: str | None = None) -> Rules:
    """Return the rules that lanes follow in this configuration. `formula` replaces the revision's
    formula.

    Raise InputError if the configuration is impossible or not supported by lanes.
    """
    if revision not in REVISIONS:
        problem = f"{revision!r:.60} has no lanes; valid: {', '.join(REVISIONS)}"
        raise InputError("$.revision", problem)
    config = read_config(values, revision)
    if config.prefix_caching:
        raise InputError("$.config.prefix_caching", "lanes have no prefix cache; valid: false")
    if config.num_blocks is not None:
        raise InputError("$.config.num_blocks", "lanes have no bounded pool; valid: null")
    choices = REVISIONS[revision]
    if formula is not None:
        named = None if is_own(formula) else volumetric.formula_named(formula)
        if named is None:
            valid = ", ".join(volumetric.FORMULAS)
            problem = f"{formula!r:.60} is no projection; valid: {valid}, or +TOKENS"
            raise InputError("$.formula", problem)
        choices = choices._replace(formula=named)
    lengths = (config.block_size, config.chunk_size, config.max_num_seqs, config.max_model_len)
    return Rules(*lengths, config.max_batch_tkv, config.interleave, choices)


def requests_table(rules: Rules, loads: Sequence[Sequence[Request]]) -> Array:
    """Return the requests of each lane in order of arrival, as an array of shape (4, R, L).

    Raise InputError if a request is aborted, or if the model would refuse it.
    """
    table = np.zeros((REQUEST_ROWS, max(map(len, loads), default=0) or 1, len(loads)), np.int64)
    longest = min(rules.max_model_len, rules.max_batch_tkv)
    for place, load in enumerate(loads):
        check_requests(tuple(load))
        for number, request in enumerate(sorted(load, key=lambda request: request.arrival)):
            path = f"$.requests[{list(load).index(request)}]"
            prompt, max_tokens = request.prompt_len, request.max_tokens
            if request.abort_at is not None:
                raise InputError(f"{path}.abort_at", f"{request.abort_at}: lanes cannot abort")
            if prompt + max_tokens - 1 > longest:
                raise InputError(
                    path, "the model refuses it; valid: requests that the model accepts"
                )
            end = prompt + request.tokens_to_emit - 1
            table[:, number, place] = prompt, max_tokens, end, request.arrival
    return table


class Lanes:
    """Lanes that run step by step, so that a caller can inspect them between steps.

    Attributes:
        computed: the computed tokens of each request, shape (R, L).
        lane: the state and the observation of each lane, shape (FIELDS, L).
    """

    def __init__(self, rules: Rules, requested: Array) -> None:
        """Start before any request has arrived. `requested` is the result of `requests_table`."""
        self.rules = rules
        self.requested = requested
        self.computed = np.zeros(requested.shape[1:], np.int64)
        self.lane = np.zeros((FIELDS, requested.shape[2]), np.int64)

    def step(self) -> None:
        """Run one step of every lane that has not ended, as `scheduler.step` does."""
        block, lane, computed = self.rules.block_size, self.lane, self.computed
        prompts, _, ends, arrivals = self.requested
        places = np.arange(lane.shape[1])
        decoding = (computed >= prompts) & (computed < ends)
        members = np.count_nonzero(decoding, axis=0)
        longest = np.where(decoding, computed, 0).max(axis=0)
        filled = np.where(decoding, _within(computed - 1, block) + 1, 0).max(axis=0)
        beyond = np.where(decoding, _within(computed, block), 0).max(axis=0)
        # The first request whose prompt is not computed is either in its prefill or first in line.
        pending = computed < prompts
        first = pending.argmax(axis=0)
        prompt, begun = prompts[first, places], computed[first, places]
        arrived = pending[first, places] & (arrivals[first, places] <= lane[STEP])
        if self.rules.choices.stale_tkv:
            current = lane[TKV]
        else:
            current = np.where(members > 0, _rectangle(longest, filled, block), 0)
        prefills = self._may_prefill(members, first, prompt, begun, arrived, current)
        decodes = ~prefills & (members > 0)
        idle = ~prefills & ~decodes
        over = (members == 0) & ~pending[first, places]
        # The first chunk begins after the left padding.
        padding = left_padding_blocks(prompt, self.rules.chunk_size, block) * block
        size = self.rules.chunk_size - np.where(begun == 0, padding, 0)
        counted = np.minimum(begun + size, prompt)
        # The tkv that the model runner reaches: `tkv_after_chunk`, or the end of the rectangle.
        before = np.where((begun == 0) & (members == 0), prompt, lane[RUNNER_TKV])
        width = np.maximum(blocks_for(prompt, block), blocks_for(before, block)) - 1
        last = np.maximum(_within(prompt - 1, block), _within(before - 1, block))
        joined = np.where(counted >= prompt, width * block + last + 1, before)
        grown = _rectangle(longest + 1, beyond + 1, block)
        reached = np.where(prefills, joined, np.where(decodes, grown, lane[RUNNER_TKV]))
        shown = reached
        # on the page, a prefill shows the tkv of the actual batch
        if not self.rules.choices.stale_tkv:
            joins = prefills & (counted >= prompt)
            fullest = np.maximum(filled, np.where(joins, _within(prompt - 1, block) + 1, 0))
            widest = np.maximum(longest, np.where(joins, prompt, 0))
            batch = np.where(widest > 0, _rectangle(widest, fullest, block), 0)
            shown = np.where(prefills, batch, reached)
        computed += decoding & decodes
        computed[first, places] += np.where(prefills, counted - begun, 0)
        lane[TKV] = np.where(idle, 0, reached)
        lane[RUNNER_TKV] = reached
        lane[SHOWN] = np.where(idle, 0, shown)
        lane[AFTER_PREFILL] = prefills
        lane[KIND] = np.select((over, prefills, decodes), (OVER, PREFILL, DECODE), NOTHING)
        lane[PEAK] = np.maximum(lane[PEAK], np.where(decodes, members * reached, 0))
        lane[IDLE] += idle & arrived
        lane[STEP] += ~over

    def _may_prefill(
        self, members: Row, first: Row, prompt: Row, begun: Row, arrived: Row, current: Row
    ) -> Row:
        """Return the lanes in which `documented.may_prefill` holds; `current` is the max-tkv."""
        rules = self.rules
        alone = (members == 0) & (begun == 0)
        may = arrived & ((begun > 0) | (members < rules.max_num_seqs))
        if rules.interleave:
            may &= (self.lane[AFTER_PREFILL] == 0) | (members == 0)
        if rules.choices.checks_once and not rules.interleave:
            questioned = begun == 0
        else:
            questioned = prompt - begun <= rules.chunk_size
        prefills = arrived & (alone | (may & ~questioned))
        [asking] = np.nonzero(may & questioned & ~alone)
        if asking.size:
            max_tokens = self.requested[MAX_TOKENS, first[asking], asking]
            prefills[asking] |= satisfies_last_chunk(
                *(rules, self.requested[:, :, asking], self.computed[:, asking]),
                *(current[asking], prompt[asking], max_tokens),
            )
        return prefills

    def over(self) -> NDArray[np.bool_]:
        """Return which lanes have ended or can make no progress."""
        over: NDArray[np.bool_] = (self.lane[KIND] == OVER) | (self.lane[IDLE] > MAX_IDLE)
        return over

    def keep(self, places: NDArray[np.bool_]) -> None:
        self.requested = np.ascontiguousarray(self.requested[:, :, places])
        self.computed = np.ascontiguousarray(self.computed[:, places])
        self.lane = np.ascontiguousarray(self.lane[:, places])


def satisfies_last_chunk(
    rules: Rules, requested: Row, computed: Row, tkv: Row, prompt: Row, max_tokens: Row
) -> Row:
    """Return in which lanes the slots, the model length and the volume allow a prompt to join. The
    result has shape (L,).

    This is `documented.satisfies_last_chunk`; `tkv` is the max-tkv that admission uses.
    """
    block, formula = rules.block_size, rules.choices.formula
    decoding = (computed >= requested[PROMPT]) & (computed < requested[END])
    remaining = requested[MAX_TOKENS] - (computed - requested[PROMPT] + 1)
    base = np.maximum(tkv, prompt)
    fits = np.count_nonzero(decoding, axis=0) < rules.max_num_seqs
    fits &= realigned(prompt, base // block, block) + max_tokens - 1 <= rules.max_model_len
    ends = np.where(decoding, realigned(computed, base // block, block) + remaining, 0)
    fits &= (ends <= rules.max_model_len).all(axis=0)
    longest = np.where(decoding, computed, 0).max(axis=0)
    padding = blocks_for(longest, block) - blocks_for(computed, block)
    member = Decoding(computed, remaining, padding * block + computed, requested[PROMPT])
    own = formula.newcomer(tkv, base, prompt, max_tokens - 1, block) + formula.slack
    ends = formula.member(np.maximum, tkv, base, prompt, member, block) + formula.slack
    # A request that does not decode is treated as ending before all others.
    ends = np.where(decoding, ends, -(1 << 40))
    return fits & accepts(ends, own, rules.max_batch_tkv, to_the_end=formula.to_the_end)


def accepts(ends: Array, own: Array, limit: int, *, to_the_end: bool) -> Row:
    """Return the lanes in which `volumetric.accepts` holds. `ends`, of shape (R, L), are the
    projections of the members, and `own`, of shape (L,), those of the newcomer."""
    if to_the_end:
        ends = -np.sort(-np.vstack((ends, own[None])), axis=0)
        return (np.arange(1, len(ends) + 1)[:, None] * ends <= limit).all(axis=0)
    ends = -np.sort(-ends, axis=0)
    batch = np.arange(2, len(ends) + 2)[:, None]  # with the newcomer
    outlived = np.count_nonzero(ends >= own, axis=0)
    fits = ((batch * ends <= limit) | (ends >= own)).all(axis=0)
    return fits & ((outlived == 0) | ((outlived + 1) * own <= limit))


def run(rules: Rules, requested: Array) -> LaneResult:
    """Run every lane to its end; `requested` is as `requests_table` returns it."""
    begins = range(0, max(requested.shape[2], 1), AT_ONCE)
    parts = [_run(Lanes(rules, requested[:, :, begin : begin + AT_ONCE])) for begin in begins]
    return LaneResult(*np.concatenate(parts, axis=1)[[STEP, PEAK, IDLE]])


def _run(lanes: Lanes) -> Array:
    # Finished lanes are removed once they make up a quarter of all lanes.
    places = np.arange(lanes.lane.shape[1])
    reported = lanes.lane.copy()
    while places.size:
        lanes.step()
        over = lanes.over()
        if 4 * np.count_nonzero(over) >= places.size:
            reported[:, places[over]] = lanes.lane[:, over]
            places = places[~over]
            lanes.keep(~over)
    return reported


def _within(tokens: Row, block_size: int) -> Row:
    return tokens - tokens // block_size * block_size


def _rectangle(longest: Row, filled: Row, block_size: int) -> Row:
    return (blocks_for(longest, block_size) - 1) * block_size + filled
