"""Explain why a rule was broken, in the vocabulary of the system."""
