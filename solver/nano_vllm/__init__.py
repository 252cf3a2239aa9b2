"""nano-vLLM explored in small scopes."""
