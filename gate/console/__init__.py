"""Terminal output, interrupts, and the exit codes of every command."""

CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
WORDS = ("nothing is wrong", "a rule is broken", "wrong input", "inconclusive")
BEGINS, ENDS = 400, 400  # how many characters of a long message are kept at each end


def shortened(line: str) -> str:
    """Replace the middle of a long message by its length. Both ends are kept, because the problem
    is stated either before or after a long value."""
    if len(line) <= BEGINS + ENDS:
        return line
    return f"{line[:BEGINS]} … ({len(line):,} characters) … {line[-ENDS:]}"
