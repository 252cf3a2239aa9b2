"""The history of a run, as far as a client of the scheduler has observed it."""
