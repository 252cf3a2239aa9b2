"""LLMServingSim's state space and scopes."""
