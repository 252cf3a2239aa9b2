"""The gate itself: replay, search, shrink, and one verdict per rule."""
