"""`schedproof show`: render one run as a page. `recording` produces the run, `page` renders it."""
