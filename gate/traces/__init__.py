"""Read, judge and visualize recorded conversations with a target."""
