"""Rules that all systems share, and the selection of rules that a target allows."""
