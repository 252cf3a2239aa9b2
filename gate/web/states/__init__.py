"""`schedproof explore --html`: draw the states of a small scope as a page."""
