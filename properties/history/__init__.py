"""The history of a run, as observed by a client of the scheduler."""
