"""Lanes: many runs of one configuration at once, as arrays.

Arrays are int64. With R requests a lane and L lanes, `asked` is (4, R, L), `computed` and room for
projections (R, L) each, `lane` (9, L): 48 R + 72 bytes a lane, 456 for eight requests. NumPy takes
AT_ONCE lanes at a time, so that a row and what is reckoned from it stay in the processor's cache,
and leaves out lanes that are over. A turn costs it much the same for one lane as for a hundred: it
pays from some dozens of lanes on. Compiled, lanes pay from the first on, after some seconds of
compiling.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..scenario import Request, check_requests
from ..spyre import documented, release_2_1_2
from ..spyre.config import read_config
from ..spyre.model import make_model
from ..spyre.volumetric import FORMULAS as PUBLISHED
from ..spyre.volumetric import ByFormula, split_slack
from .compiled import compiled
from .projections import FORMULAS
from .rules import (
    ARRIVAL,
    ASKED,
    END,
    FIELDS,
    IDLE,
    KIND,
    MAX_TOKENS,
    OVER,
    PEAK,
    PROMPT,
    STEP,
    Rules,
)
from .turn import turn

Array = NDArray[np.int64]
REVISIONS = ("sound", "documented", "2.1.2")
AT_ONCE = 2048  # lanes
# Steps that are all alike are taken in one stride, however many.
STRIDE = 1 << 40
# Two idle steps in a row change nothing any more: a lane that idles so often is stuck, and is cut.
MAX_IDLE = 100


class LaneResult(NamedTuple):
    """What became of each lane: its steps, the largest batch x tkv of a decode step, and the idle
    steps while a request waited or prefilled."""

    steps: Array
    peak: Array
    idle: Array


def read_rules(revision: str, values: Mapping[str, Any], formula: str | None = None) -> Rules:
    """What lanes go by; `formula` admits by that projection instead of the revision's own.

    Raises:
        InputError: an impossible configuration, or one that lanes do not know.
    """
    if revision not in REVISIONS:
        problem = f"{revision!r:.60} has no lanes; valid: {', '.join(REVISIONS)}"
        raise InputError("$.revision", problem)
    config = read_config(values, revision)
    if config.prefix_caching:
        raise InputError("$.config.prefix_caching", "lanes have no prefix cache; valid: false")
    if config.num_blocks is not None:
        raise InputError("$.config.num_blocks", "lanes have no bounded pool; valid: null")
    chosen = make_model(revision, values).revision
    own = next(name for name, known in PUBLISHED.items() if ByFormula(known) == chosen.volume_check)
    parts = split_slack(formula or own)
    if parts is None:
        problem = f"{formula!r:.60} is no projection; valid: {', '.join(FORMULAS)}, or +TOKENS"
        raise InputError("$.formula", problem)
    return Rules(
        config.block_size,
        config.chunk_size,
        config.max_num_seqs,
        config.max_model_len,
        config.max_batch_tkv,
        config.interleave,
        chosen.current_tkv is release_2_1_2.current_tkv,
        chosen.is_held_to_last_chunk is release_2_1_2.is_held_to_last_chunk,
        chosen.fits_model_length is documented.fits_model_length,
        FORMULAS.index(parts[0]),
        parts[1],
    )


def asked_by(rules: Rules, loads: Sequence[Sequence[Request]]) -> Array:
    """What the requests of each lane ask for, in order of arrival: (4, R, L).

    Raises:
        InputError: an abort, or a request that would be refused at the door.
    """
    most = max((len(load) for load in loads), default=0)
    asked = np.zeros((ASKED, most, len(loads)), np.int64)
    longest = min(rules.max_model_len, rules.max_batch_tkv)
    for place, load in enumerate(loads):
        check_requests(tuple(load))
        for number, one in enumerate(sorted(load, key=lambda request: request.arrival)):
            path = f"$.requests[{list(load).index(one)}]"
            if one.abort_at is not None:
                raise InputError(f"{path}.abort_at", f"{one.abort_at}: lanes cannot abort")
            if one.prompt_len + one.max_tokens - 1 > longest:
                raise InputError(path, "refused at the door; valid: what the model takes")
            asked[PROMPT, number, place] = one.prompt_len
            asked[MAX_TOKENS, number, place] = one.max_tokens
            asked[END, number, place] = one.prompt_len + one.tokens_to_emit - 1
            asked[ARRIVAL, number, place] = one.arrival
    return asked


class Lanes:
    """Lanes that are taken turn by turn, to be looked at in between.

    Attributes:
        computed: tokens computed of each request, (R, L).
        lane: what each lane remembers and tells, rows as in `rules`.
    """

    def __init__(self, rules: Rules, asked: Array) -> None:
        """Begin where nothing has arrived; requests in order of arrival (`asked_by`)."""
        _, requests, lanes = asked.shape
        self.rules = rules
        self.asked = asked
        self.computed = np.zeros((requests, lanes), np.int64)
        self.lane = np.zeros((FIELDS, lanes), np.int64)
        self._projected = np.zeros((requests, lanes), np.int64)

    def turn(self, max_steps: int = 1) -> None:
        """One step of every lane that is not over, or one stride of up to `max_steps`."""
        turn(self.rules, self.asked, self.computed, self.lane, self._projected, max_steps)

    def over(self) -> NDArray[np.bool_]:
        """Which lanes have ended: everything has its last token, or the lane is stuck."""
        ended: NDArray[np.bool_] = self.lane[KIND] == OVER
        stuck: NDArray[np.bool_] = self.lane[IDLE] > MAX_IDLE
        return ended | stuck

    def keep(self, places: NDArray[np.bool_]) -> None:
        """Leave out the other lanes."""
        self.asked = np.ascontiguousarray(self.asked[:, :, places])
        self.computed = np.ascontiguousarray(self.computed[:, places])
        self.lane = np.ascontiguousarray(self.lane[:, places])
        self._projected = np.ascontiguousarray(self._projected[:, places])


def run(
    rules: Rules, asked: Array, *, strides: bool = True, numba: bool | None = None
) -> LaneResult:
    """Run every lane to its end.

    Args:
        rules: what is the same for all lanes.
        asked: what the requests ask for, as `asked_by` gives it.
        strides: decode steps without an event are taken together; the result is the same.
        numba: run by Numba, or NumPy; None for Numba where it is installed.

    Raises:
        InputError: Numba is asked for, and not installed.
    """
    max_steps = STRIDE if strides else 1
    by_numba = compiled() if numba is not False else None
    if numba and by_numba is None:
        raise InputError("numba", "it is not installed; valid: pip install numpy numba")
    if by_numba is not None:
        by_lane = np.ascontiguousarray(np.moveaxis(asked, -1, 0))
        lane = np.zeros((len(by_lane), FIELDS), np.int64)
        by_numba(rules, by_lane, lane, max_steps, MAX_IDLE)
        return LaneResult(lane[:, STEP].copy(), lane[:, PEAK].copy(), lane[:, IDLE].copy())
    parts = [
        _run_rows(
            Lanes(rules, np.ascontiguousarray(asked[:, :, begin : begin + AT_ONCE])), max_steps
        )
        for begin in range(0, max(asked.shape[2], 1), AT_ONCE)
    ]
    return LaneResult(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def _run_rows(lanes: Lanes, max_steps: int) -> LaneResult:
    """Run by NumPy. A request that is over is left out once a quarter of the lanes are."""
    places = np.arange(lanes.lane.shape[1])
    reported = lanes.lane.copy()
    while places.size:
        lanes.turn(max_steps)
        over = lanes.over()
        if 4 * np.count_nonzero(over) >= places.size:
            reported[:, places[over]] = lanes.lane[:, over]
            places = places[~over]
            lanes.keep(~over)
    return LaneResult(reported[STEP], reported[PEAK], reported[IDLE])
