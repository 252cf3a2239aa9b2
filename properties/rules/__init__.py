"""The rules that every system shares, and which rules a target lets us check."""
