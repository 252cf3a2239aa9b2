"""Lemmas, encodings and state space for Spyre's rules."""
