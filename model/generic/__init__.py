"""Any scheduler with continuous batching: common rules, and configuration keys that it declares
itself."""
