"""What is checked: one predicate per rule, read from observations alone.

`ledger` is what the client of a scheduler knows, `monitor` asks every predicate after every step,
`session` puts a target under a monitor, `machine` lets Hypothesis drive it. The predicates spell
the documents' arithmetic out anew: they share no formula with the models that they judge.
"""
