"""The Hypothesis state machine, and the generators that each system supplies."""
