"""The checks of any scheduler: predicates, strategies, bounds."""
