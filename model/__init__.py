"""Executable reference models of each system's behaviour: pure functions, kept small.

Shared parts are in this folder (`scenario`, `observation`, `target`, `systems`); each system has
its own package. No model reads a file, a clock or a source of randomness.
"""
