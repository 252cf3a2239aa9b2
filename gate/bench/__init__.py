"""How fast it all is: one figure a file, each a comparison within one run."""
