"""Explain why a rule broke, in the terms of the system."""
