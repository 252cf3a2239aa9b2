"""Proofs in lines."""

from ...solver.smt.obligation import Discharged

# What the lemmas about one request speak of.
TERMS = (
    "  tkv:  the position of the batch's next token; a newcomer with a longer prompt moves it on",
    "  base: the larger of the tkv that admission goes by and the newcomer's prompt",
    "  term: what the formula says that the tkv of one request can reach",
    "  walk: by ascending terms, the formula compares the requests still to come x term with the "
    "limit, until it can answer",
    "  a lemma of any number speaks of one request or of two, whatever the batch is; the loops are "
    "run with few",
)


def lemma_line(one: Discharged, width: int) -> str:
    """How a lemma ended, its name in so many columns."""
    seconds = f"{one.seconds:5.2f} s"
    return f"{one.status:10} {one.name:{width}} {seconds}  {one.by:4}  {one.sentence}"


def blocks_of(block: int | None) -> str:
    """What a proof is about: blocks of so many tokens, None for any."""
    return "blocks of any size" if block is None else f"blocks of {block}"
