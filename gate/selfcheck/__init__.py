"""Checks of the suite itself: witnesses, mutants, contracts, agreement of the engines."""
