"""Figures of speed, each beside another figure of the same run."""
