"""Built-in scenarios, one folder a system."""
