"""Tools about admission by volume: what the published formulas cost, and how good a rule can be."""
