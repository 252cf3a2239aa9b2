"""Whole numbers for Z3, model code run on symbols, and lemmas with their guards."""
