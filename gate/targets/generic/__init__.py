"""Targets of the generic system: any scheduler that speaks the protocol."""
