"""Targets that are LLMServingSim's scheduler."""
