"""The style that all pages share, and the functions that assemble a page in one file."""
