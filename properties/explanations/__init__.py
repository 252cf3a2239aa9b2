"""Explain why a rule broke, in the vocabulary of the system."""
