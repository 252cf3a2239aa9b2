"""Tools about admission by volume: what the published formulas cost, and how good an admission
rule could be."""
