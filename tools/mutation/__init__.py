"""Mutate the models, and measure which changes the tests and the rules notice."""
