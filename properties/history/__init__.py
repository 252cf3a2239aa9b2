"""What a client of a scheduler has observed so far in a run."""
