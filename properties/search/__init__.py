"""The Hypothesis state machine and the generators of each system."""
