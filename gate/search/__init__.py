"""Search for a counterexample or a proof of one rule."""
