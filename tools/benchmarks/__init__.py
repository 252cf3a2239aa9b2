"""Benchmarks: each figure is compared with another one of the same run."""
