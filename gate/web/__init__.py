"""Pages for a browser. Each is one file that needs no network."""
