"""The rules that every system shares, and the choice of rules that a target allows."""
