"""Mutated models, which measure what the tests and the rules notice."""
