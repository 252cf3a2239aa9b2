"""Any scheduler with continuous batching: it is judged by the common rules, and declares its own
configuration keys."""
