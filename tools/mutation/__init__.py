"""Changed models, to measure what the tests and the rules notice."""
