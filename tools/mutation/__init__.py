"""Measure with mutated models what the tests and the rules notice."""
