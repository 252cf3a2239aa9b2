"""The style that all pages share, and the functions that put a page into one file."""
