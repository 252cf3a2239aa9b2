"""The checks of Spyre: predicates, strategies, bounds."""

# A kind of configuration that only models start with.
FEWER_BLOCKS = "a pool smaller than the limit needs"
