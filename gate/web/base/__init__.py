"""The style that all pages share, and how a page becomes one file."""
