"""Target A against target B, or against a recorded baseline."""
