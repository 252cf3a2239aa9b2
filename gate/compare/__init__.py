"""Compare two targets, A and B, or a target with a recorded baseline."""
