"""The gate: replay, search, shrink, and give one verdict per rule."""
