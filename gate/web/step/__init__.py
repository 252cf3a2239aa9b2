"""`schedproof step`: step a scheduler by hand, in a browser."""
