"""Search for counterexamples to Spyre's volumetric rules, or prove these rules."""
