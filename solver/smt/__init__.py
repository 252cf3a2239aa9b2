"""Integers for Z3, symbolic execution of model code, and lemmas with their guards."""
