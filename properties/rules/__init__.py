"""Rules that all systems share, and the selection of rules that can be checked on a target."""
