"""Recorded conversations with a target: reading, judging and drawing them."""
