"""`schedproof show`: a run as one page for a browser.

`recording` makes the run, `page` draws it.
"""
