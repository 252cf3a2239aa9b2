"""One predicate per rule, a folder per system."""
