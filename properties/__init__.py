"""The checks: one predicate per rule, which reads nothing but observations.

- `explanations`: says why a rule was broken.
"""
