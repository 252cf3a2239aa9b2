"""The rule catalogue: one TOML file of rules per system, and a loader."""
