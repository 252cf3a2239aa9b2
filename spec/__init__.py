"""The rule catalogue: the rules in one TOML file per system, and their loader."""
