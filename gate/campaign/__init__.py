"""Campaigns: long searches on many processes or machines, with one ledger of results."""
