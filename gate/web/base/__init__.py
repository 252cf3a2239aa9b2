"""The style shared by all pages, and functions that put a page together in one file."""
