"""Terminal output, interrupts, and the exit codes of every command."""

CONFORMS, BROKEN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
WORDS = ("nothing is wrong", "a rule is broken", "wrong input", "inconclusive")
