"""`schedproof step`: a scheduler stepped by hand in a browser."""
