"""Targets of any scheduler that speaks the protocol."""
