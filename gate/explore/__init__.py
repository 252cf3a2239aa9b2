"""Exhaustive runs of small scopes in processes, with checkpoints and a report."""
