"""Encodings of Spyre's rules."""
