"""Search for a counterexample to one rule, or a proof of it."""
