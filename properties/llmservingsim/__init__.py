"""The checks of LLMServingSim: predicates, strategies, bounds."""
