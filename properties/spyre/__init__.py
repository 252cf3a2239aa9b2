"""Checks of Spyre: predicates, strategies, bounds."""

# A kind of configuration in which only models start.
FEWER_BLOCKS = "a pool smaller than the limit needs"
