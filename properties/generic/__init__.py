"""Checks of the generic system: predicates, strategies, bounds."""
