"""`schedproof show`: render one run as a page. `recording` makes the run, `page` renders it."""
