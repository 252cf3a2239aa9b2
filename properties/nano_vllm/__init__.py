"""What is checked of nano-vLLM: predicates, strategies, bounds."""
