"""Benchmarks. Each figure is compared with another one that the same run measured."""
