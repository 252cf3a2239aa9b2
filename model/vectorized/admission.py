"""Room for a newcomer in the decode batch, as `spyre.documented.satisfies_last_chunk`, on rows."""

import numpy as np

from ..pool import blocks_for
from ..spyre.volumetric import Decoding, realigned
from .projections import FIGURE, of_member, of_newcomer
from .rows import Row, Rows, choose
from .rules import END, MAX_TOKENS, PROMPT, Rules

# The projection of a request that does not decode: below every other.
ABSENT = -(1 << 50)


def satisfies_last_chunk(
    rules: Rules,
    asked: Rows,
    computed: Rows,
    projected: Rows,
    tkv: Row,
    batch: Row,
    longest: Row,
    prompt: Row,
    max_tokens: Row,
) -> Row:
    """Slots, the model's length and the volume allow a prompt to join.

    `tkv` is what admission goes by, `batch` the number of members, `longest` the tokens of the
    longest. `projected` is overwritten: a row for each request.
    """
    block = rules.block_size
    width = np.maximum(tkv, prompt) // block
    fits = batch < rules.max_num_seqs
    if rules.keeps_model_length:
        fits = fits & (realigned(prompt, width, block) + max_tokens - 1 <= rules.max_model_len)
    for number in range(len(computed)):
        tokens, own = computed[number], asked[PROMPT][number]
        decodes = (tokens >= own) & (tokens < asked[END][number])
        remaining = asked[MAX_TOKENS][number] - (tokens - own + 1)
        if rules.keeps_model_length:
            end = choose(decodes, realigned(tokens, width, block) + remaining, 0)
            fits = fits & (end <= rules.max_model_len)
        padding = blocks_for(longest, block) - blocks_for(tokens, block)
        own_tkv = padding * block + tokens
        member = Decoding(tokens, remaining, own_tkv, own)
        end = of_member(rules.formula, tkv, prompt, member, block)
        projected[number] = choose(decodes, end + rules.slack, ABSENT)
    newcomer = of_newcomer(rules.formula, tkv, prompt, max_tokens - 1, block) + rules.slack
    return fits & accepts(projected, newcomer, rules.max_batch_tkv, rules.formula == FIGURE)


def accepts(projected: Rows, newcomer: Row, limit: int, to_the_end: bool) -> Row:
    """The walk of `volumetric.accepts` without sorting: each is met by requests that last as long.

    Of equals the first meets them all, so that it is the one that counts.
    """
    outlived = newcomer * 0
    fits = newcomer == newcomer
    for number in range(len(projected)):
        end = projected[number]
        outlived = outlived + (end >= newcomer)
        batch = outlived * 0 + (newcomer >= end)
        for other in range(len(projected)):
            batch = batch + (projected[other] >= end)
        if to_the_end:
            fits = fits & (batch * end <= limit)
        else:
            fits = fits & ((batch * end <= limit) | (end >= newcomer))
    if to_the_end:
        return fits & ((outlived + 1) * newcomer <= limit)
    return fits & ((outlived == 0) | ((outlived + 1) * newcomer <= limit))
