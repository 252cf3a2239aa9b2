"""The functions that `import schedproof` provides. The command line calls them too."""
