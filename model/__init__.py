"""Executable reference models of each system's behaviour, written as pure functions.

This folder contains the shared parts (`scenario`, `observation`, `target`, `systems`), and a
package for each system. No model reads a file, a clock or a source of randomness.
"""
