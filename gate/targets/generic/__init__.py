"""Targets of any kind: any scheduler that speaks the protocol."""
