"""State spaces of schedulers, and the search that explores them."""
