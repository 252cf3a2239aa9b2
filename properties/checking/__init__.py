"""Run a target under all predicates: sessions, replays, lockstep, and comparisons of two
targets."""
