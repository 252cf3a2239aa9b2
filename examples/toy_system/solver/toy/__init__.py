"""The toy scheduler explored in small scopes."""
