"""Encodings of vLLM's rules, and its scheduler as it is explored."""
