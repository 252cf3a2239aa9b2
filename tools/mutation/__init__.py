"""Measure, by mutating the models, which changes the tests and the rules notice."""
