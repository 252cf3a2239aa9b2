"""The rule catalogue: what must hold, in one TOML file per system, and its loader."""
