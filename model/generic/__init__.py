"""Any scheduler that batches continuously: what all of them have, and what one declares itself."""
