"""Targets that run LLMServingSim's scheduler."""
