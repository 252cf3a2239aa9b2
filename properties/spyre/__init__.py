"""What is checked of Spyre: predicates, strategies, bounds."""
