"""Any scheduler with continuous batching, judged by the common rules; it may declare its own
configuration keys."""
