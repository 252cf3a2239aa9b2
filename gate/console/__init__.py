"""Terminal output: lines, steps as text, exit codes, and checks of option values."""
