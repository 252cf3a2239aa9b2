"""HTML pages. Each page is a single file that needs no network."""
