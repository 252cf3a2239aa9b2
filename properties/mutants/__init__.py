"""Planted faults, for the tests and `selfcheck` only: mutants and known bugs by system."""
