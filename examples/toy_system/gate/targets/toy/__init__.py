"""Targets of the toy scheduler. One with releases on a package index has its adapter here."""
