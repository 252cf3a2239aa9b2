"""Recorded conversations with a target: read, judge and draw them."""
