"""`schedproof show`: one run as a page. `recording` makes the run, `page` draws it."""
