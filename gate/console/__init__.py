"""Terminal output, interrupts, and the exit codes of every command."""

CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
WORDS = ("nothing is wrong", "a rule is broken", "wrong input", "inconclusive")
BEGINS, ENDS = 400, 400  # characters of a long message


def shortened(line: str) -> str:
    """Return a message; if it is long, its middle is replaced by its length.

    The description of what is wrong with a value stands before or behind the value, so it is kept.
    """
    if len(line) <= BEGINS + ENDS:
        return line
    return f"{line[:BEGINS]} … ({len(line):,} characters) … {line[-ENDS:]}"
