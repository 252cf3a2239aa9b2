"""What is checked of vLLM V1: predicates, strategies, bounds."""
