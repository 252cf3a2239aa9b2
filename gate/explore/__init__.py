"""Explore small scopes exhaustively in several processes, with checkpoints and a report."""
