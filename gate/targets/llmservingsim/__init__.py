"""Targets with LLMServingSim's scheduler."""
