"""Figures of speed, each beside another figure of the same run. Not part of the wheel."""
