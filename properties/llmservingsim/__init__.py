"""What is checked of LLMServingSim: predicates, strategies, bounds."""
