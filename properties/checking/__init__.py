"""Run a target under all predicates: sessions, replays, lockstep, comparison of two targets."""
