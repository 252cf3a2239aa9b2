"""LLMServingSim's scheduler as it is explored."""
