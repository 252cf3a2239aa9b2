"""The outside world: command line, targets, files, reports."""
