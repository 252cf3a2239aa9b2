"""The gate: replay scenarios, search for failures, shrink them, and give one verdict per rule."""
