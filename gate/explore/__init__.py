"""Explore small scopes exhaustively in processes, with checkpoints and a report."""
