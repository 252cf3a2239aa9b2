"""Read, judge and draw recorded conversations with a target."""
