"""Lemmas, encodings and state space for vLLM's rules."""
