"""Searches for a counterexample or a proof of Spyre's volumetric rules."""
