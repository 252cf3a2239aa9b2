"""The library: functions that `import schedproof` provides and that the command line calls."""
