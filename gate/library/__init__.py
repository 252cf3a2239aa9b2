"""The library: the functions that `import schedproof` offers and the command line calls."""
