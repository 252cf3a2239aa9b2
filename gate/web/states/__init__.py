"""`schedproof explore --html`: the states of a small scope as a page."""
