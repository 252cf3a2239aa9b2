"""What must hold: the rule catalogue, one TOML file per system, and its loader."""
