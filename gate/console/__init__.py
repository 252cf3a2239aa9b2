"""Terminal output, interrupts, and the exit codes of every command."""

CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
WORDS = ("nothing is wrong", "a rule is broken", "wrong input", "inconclusive")
BEGINS, ENDS = 400, 400  # characters of a long message


def shortened(line: str) -> str:
    """Return a message with its length in place of its middle if it is long. What is wrong with a
    value stands before or behind it."""
    if len(line) <= BEGINS + ENDS:
        return line
    return f"{line[:BEGINS]} … ({len(line):,} characters) … {line[-ENDS:]}"
