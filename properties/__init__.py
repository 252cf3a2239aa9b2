"""The checks: one predicate per rule, which reads nothing but observations.

`history` holds what a client of a scheduler can observe, each system's `predicates` has one file
per topic, `checking` runs every predicate after each step of a target, `search` lets Hypothesis
drive it, `shrinking` makes a failing scenario smaller, `explanations` says why a rule broke.
"""
