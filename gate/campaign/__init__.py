"""Campaigns: many independent pieces of work, on one machine or on many, and one ledger of them."""
