"""What is checked of any scheduler: predicates, strategies, bounds."""
