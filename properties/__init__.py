"""The checks: one predicate per rule. A predicate reads nothing but observations.

- `history`: what a client of a scheduler can observe.
- `rules`: the rules that all systems share. Each system has its own rules in `predicates`.
- `checking`: runs a target and evaluates the predicates after each step.
- `search`: lets Hypothesis drive a target.
- `shrinking`: makes a failing scenario smaller.
- `explanations`: says why a rule was broken.
"""
