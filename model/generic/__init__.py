"""The generic system: any scheduler with continuous batching. It is judged by the common rules, and
may declare its own configuration keys."""
