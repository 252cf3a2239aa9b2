"""nano-vLLM's state space and scopes."""
