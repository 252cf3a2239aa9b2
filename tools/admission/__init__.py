"""Admission by volume: what published formulas cost, and how good a rule can be."""
