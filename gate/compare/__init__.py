"""Compare target A with target B, or with a recorded baseline."""
