"""The toy scheduler: first come, first served, one prompt per step."""
