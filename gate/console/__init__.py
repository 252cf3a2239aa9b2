"""Terminal output, interrupts, and the exit codes of every command."""

CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
WORDS = ("nothing is wrong", "a rule is broken", "wrong input", "inconclusive")
# How many characters of a long message to keep at its beginning and its end.
BEGINS, ENDS = 400, 400


def shortened(line: str) -> str:
    """Shorten a long message: leave out its middle and give its original length. Keep both ends,
    because a message states its problem before or after a long value."""
    if len(line) <= BEGINS + ENDS:
        return line
    return f"{line[:BEGINS]} … ({len(line):,} characters) … {line[-ENDS:]}"
