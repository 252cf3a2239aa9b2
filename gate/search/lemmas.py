"""Proofs in lines."""

from ...solver.obligation import Discharged


def lemma_line(one: Discharged, width: int) -> str:
    """How a lemma ended, its name in so many columns."""
    seconds = f"{one.seconds:5.2f} s"
    return f"{one.status:10} {one.name:{width}} {seconds}  {one.by:4}  {one.sentence}"


def blocks_of(block: int | None) -> str:
    """What a proof is about: blocks of so many tokens, None for any."""
    return "blocks of any size" if block is None else f"blocks of {block}"
