"""What is the same in all lanes: configuration and revision, as numbers."""

from typing import NamedTuple


class Rules(NamedTuple):
    """The keys of the configuration and the choices of the revision that lanes go by.

    `formula` is a place in `projections.FORMULAS`, `slack` the tokens more for every request.
    """

    block_size: int
    chunk_size: int
    max_num_seqs: int
    max_model_len: int
    max_batch_tkv: int
    interleave: bool
    stale_tkv: bool
    checks_once: bool
    keeps_model_length: bool
    formula: int
    slack: int


# Rows of `asked`: what a request asks for. `END`: its tokens computed when it has its last token.
PROMPT, MAX_TOKENS, END, ARRIVAL = range(4)
ASKED = 4
# Rows of `lane`. `TKV` to `AFTER_PREFILL` are what the scheduler remembers; `KIND`, `STEPS` and
# `SHOWN` (the tkv that is shown, 0 for none) tell of the last turn, `PEAK` (the largest
# batch x tkv) and `IDLE` (idle steps while a request waits or prefills) of the whole run.
STEP, TKV, RUNNER_TKV, AFTER_PREFILL, KIND, STEPS, SHOWN, PEAK, IDLE = range(9)
FIELDS = 9
OVER, PREFILL, DECODE, NOTHING = range(4)
