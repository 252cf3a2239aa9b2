"""Checks of LLMServingSim: predicates, strategies, bounds."""
