"""Folders of scenarios: the built-in ones and those of a user's repository."""
