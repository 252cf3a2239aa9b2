"""The library: what `import schedproof` offers, and what the command line calls."""
