"""Benchmarks. Each figure is compared with another figure from the same run."""
